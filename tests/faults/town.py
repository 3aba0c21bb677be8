"""A gateway with real neighbours: Kafka to Kafka, HTTP to files, MQTT to S3, all at once, and a ledger for each."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from tests.connectors.s3_server import CREDENTIALS
from tests.e2e.harness import parts_in, until
from tests.faults.senders import Sender, bad

SCHEMA = "id STRING, n BIGINT"
SQL = "SELECT id, n, n * 2 AS twice FROM events WHERE n % 10 <> 3"
READY_DEADLINE_S = 120.0
# What is sent must have arrived so long after the last fault; generous, since the machine is noisy.
ARRIVAL_DEADLINE_S = 180.0


class TownGateway:
    """The gateway process, which is started again and again with the same state.

    Args:
        folder: state, log and config.
        queries: the ``queries`` part of the config.
        api_port: the port of its API.
        cloud: overrides of the ``cloud`` part, which has no VMs.
        private: overrides of the ``private`` part.
        gateway: overrides of the ``gateway`` part.
    """

    def __init__(
        self,
        folder: Path,
        queries: dict[str, Any],
        api_port: int,
        *,
        cloud: dict[str, Any] | None = None,
        private: dict[str, Any] | None = None,
        gateway: dict[str, Any] | None = None,
    ) -> None:
        self.folder = folder
        self.state_dir = folder / "state"
        self._api_port = api_port
        self._config = folder / "town.yaml"
        self.log = folder / "gateway.log"
        document = {
            "gateway": {
                "state_dir": str(self.state_dir),
                "slot": "500ms",
                "api": {"listen": f"127.0.0.1:{api_port}"},
                "orphan_after": "300s",
                **(gateway or {}),
            },
            "private": {"spark": {"master": "local[1]"}, **(private or {})},
            "cloud": {
                "provider": "process",
                "max_vms": 0,
                "boot": "1s",
                "billing": {"period": "10s", "minimum": "10s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
                "budget": {"usd_per_day": 5},
                **(cloud or {}),
            },
            "queries": queries,
        }
        with self._config.open("w") as file:
            YAML(typ="safe").dump(document, file)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, failpoints: str = "") -> None:
        """Start the process."""
        command = [sys.executable, "-m", "gateway", "run", str(self._config), "--keep-hosts"]
        environment = {**os.environ, **CREDENTIALS, "SPILLWAY_FAILPOINTS": failpoints}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)

    def start_ready(self) -> float:
        """Start it, and return how many seconds passed until it printed that it was ready."""
        self.start()
        return self.wait_ready()

    def wait_ready(self) -> float:
        """Return how many seconds pass until it prints that it is ready."""
        begun_s = time.monotonic()
        while not self.ready():
            assert self.runs, f"the gateway ended instead of becoming ready:\n{self.tail()}"
            assert time.monotonic() - begun_s < READY_DEADLINE_S, f"the gateway was not ready:\n{self.tail()}"
            time.sleep(0.02)
        return time.monotonic() - begun_s

    def status(self) -> dict[str, Any]:
        """Return the gateway's status."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._api_port}/status", timeout=60) as answer:
            return dict(json.load(answer))

    def ready(self) -> bool:
        """Return whether ``/ready`` answers 200."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._api_port}/ready", timeout=5) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def stands_by(self) -> bool:
        """Return whether it waits for the lease of its fleet, with its engine host ready."""
        assert self.runs, f"the gateway ended instead of standing by:\n{self.tail()}"
        try:
            return bool(self.status()["phase"] == "standby")
        except (urllib.error.URLError, OSError):
            return False

    @property
    def runs(self) -> bool:
        """Whether the process runs."""
        return self._process is not None and self._process.poll() is None

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        """Stop it with SIGSTOP, as a machine does that hangs."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> int:
        """Let it go on, and return the exit code with which it ends."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        return self._process.wait(READY_DEADLINE_S)

    def wait_killed(self, deadline_s: float) -> bool:
        """Return whether the process ended by SIGKILL in time."""
        assert self._process is not None
        try:
            return self._process.wait(deadline_s) == -signal.SIGKILL
        except subprocess.TimeoutExpired:
            return False

    def ask_for_replay(self, query: str, deadline_s: float) -> None:
        """Request a replay of a query's dead letters, again and again until the gateway dies from it."""
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._api_port}/queries/{query}/replay-dead-letters",
            b"{}",
            {"Content-Type": "application/json"},
        )
        ends = time.monotonic() + deadline_s
        while self.runs and time.monotonic() < ends:
            try:
                urllib.request.urlopen(request, timeout=5).close()
            except (urllib.error.URLError, OSError, http.client.HTTPException):
                time.sleep(0.1)  # not ready yet, or dying

    def stop(self) -> None:
        """Request an orderly end."""
        assert self._process is not None
        self._process.terminate()

    def drain(self) -> None:
        """Request an orderly end, and check that it succeeds."""
        assert self._process is not None
        self.stop()
        code = self._process.wait(READY_DEADLINE_S)
        assert code == 0, f"exit code {code}:\n{self.tail()}"

    def tail(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(errors="replace")[-6000:]

    def dead_letters(self, query: str) -> list[dict[str, Any]]:
        """Return the dead letters of a query."""
        path = self.state_dir / "queries" / query / "dead-letters.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def query(source: dict[str, Any], sink: dict[str, Any]) -> dict[str, Any]:
    """Return a query that keeps nine of ten events."""
    return {"source": source, "schema": SCHEMA, "sql": SQL, "sink": sink, "qos": {"latency": "2s"}}


def file_rows(folder: Path) -> list[dict[str, Any]]:
    """Read the rows of a file sink in the order of release."""
    return [json.loads(line) for part in parts_in(folder) for line in (folder / str(part)).read_bytes().splitlines()]


def doubled(n: int) -> dict[str, Any]:
    """The result of ``SQL`` for an event."""
    return {"id": f"event {n}", "n": n, "twice": 2 * n}


def account(sender: Sender, rows: list[dict[str, Any]], answer: Callable[[int], dict[str, Any]] = doubled) -> str:
    """Compare rows with a sender's ledger; return what is wrong, or ""."""
    found = [int(row["n"]) for row in rows]
    wanted = {n for n in sender.taken if n % 10 != 3}
    lost = wanted - set(found)
    strange = set(found) - wanted - sender.unknown
    twice = len(found) - len(set(found))
    wrong = [row for row in rows if row != answer(row["n"])]
    disorder = sum(later < earlier for earlier, later in pairwise(found))
    if not (lost or strange or twice or wrong or disorder):
        return ""
    return (
        f"{sender.name}: {len(lost)} lost {sorted(lost)[:5]}, {twice} twice, {len(strange)} strange "
        f"{sorted(strange)[:5]}, {len(wrong)} wrong {wrong[:2]}, {disorder} out of order"
    )


def arrived(sender: Sender, rows: Callable[[], list[dict[str, Any]]]) -> Callable[[], bool]:
    """Return a condition: everything that was accepted from the sender is there."""
    wanted = {n for n in sender.taken if n % 10 != 3}
    return lambda: wanted <= {int(row["n"]) for row in rows()}


def all_arrived(senders: dict[Sender, Callable[[], list[dict[str, Any]]]]) -> None:
    """Wait until every ledger is complete."""
    for sender, rows in senders.items():
        until(arrived(sender, rows), f"all events of {sender.name} have arrived", ARRIVAL_DEADLINE_S)


def dead_letters_account(sender: Sender, letters: list[dict[str, Any]]) -> str:
    """Compare dead letters with the bad records that were sent; return what is wrong, or ""."""
    raws = [base64.b64decode(x["raw_base64"]) if "raw_base64" in x else x["raw"].encode() for x in letters]
    wanted = [bad(bunch) for bunch in sender.bad_taken]
    # Those that were replayed and failed again stand behind the others.
    if sorted(raws) == sorted(wanted):
        return ""
    return f"{len(raws)} dead letters, {len(wanted)} bad records: {raws[:2]} {wanted[:2]}"
