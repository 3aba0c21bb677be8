"""Runs real gateways as processes and reads their output; every wait has a deadline."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import psutil
from ruamel.yaml import YAML

from engines.email.generator import generate_mail
from engines.email.mailbox import Mail
from engines.email.oracle import answer, windows
from engines.email.queries import EMAIL_SQL, Q5_SCHEMA_DDL, SCHEMA_DDL
from gateway.config.configstate import CLAIM_NAME
from gateway.sinks.parts.filesink import PartName
from gateway.views.logfile import as_text

DEADLINE_S = 240.0
METRICS_RUN_EVENTS = 40
# Of the gateway alone, without its engine hosts.
MEMORY_MAX_BYTES = 512 << 20
# Thresholds below what one micro-batch takes: the VM is wanted from the first slot on, whatever machine this is.
EAGER = {
    "start_vm_above": "20ms",
    "send_above": "10ms",
    "keep_vm_above": "5ms",
    "keep_vm_bytes": "0B",
    "tolerance": "0s",
}


def until(condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
    """Return once ``condition`` holds; fail the test if it does not hold in time."""
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, f"not within {deadline_s:g} s: {what}"
        time.sleep(0.05)


def expected_rows(mails: list[Mail]) -> list[dict[str, Any]]:
    rows = msgspec.json.encode([row for mail in mails if (row := answer(mail))])
    return msgspec.json.decode(rows, type=list[dict[str, Any]])


def expected_windows(mails: list[Mail]) -> list[dict[str, Any]]:
    answers = [row for mail in mails if (row := answer(mail))]
    return msgspec.json.decode(msgspec.json.encode(list(windows(answers))), type=list[dict[str, Any]])


def write_mail(path: Path, mails: list[Mail]) -> None:
    """Write mails as JSON lines."""
    path.write_bytes(msgspec.json.Encoder().encode_lines(mails))


def mail_fixture(count: int, seed: int = 7) -> list[Mail]:
    """Return generated mails."""
    return list(generate_mail(count, seed))


_STARTED: list[subprocess.Popen[bytes]] = []


def kill_gateways() -> None:
    """Kill the gateways that a failed test has left: they would hold the state_dir of all others."""
    while _STARTED:
        process = _STARTED.pop()
        if process.poll() is None:
            process.kill()
            process.wait()


class Gateway:
    """A gateway process over one config.

    Args:
        folder: this test's folder for config, sinks and logs.
        state_dir: shared by the tests of a session, so that engine hosts are started once.
        queries: the ``queries`` part of the config.
        cloud: overrides of the ``cloud`` part.
        memory: what all queries may hold.
        spark: the ``private.spark`` part.
        more: of the ``gateway`` part.
        private: more of the ``private`` part.
    """

    def __init__(
        self,
        folder: Path,
        state_dir: Path,
        queries: Mapping[str, Any],
        cloud: Mapping[str, Any] | None = None,
        *,
        memory: str = "512MiB",
        spark: Mapping[str, Any] = MappingProxyType({"master": "local[1]"}),
        more: Mapping[str, Any] = MappingProxyType({}),
        private: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self.folder = folder
        self.state_dir = state_dir
        self.config = folder / "config.yaml"
        self.report = folder / "report.json"
        self.log = folder / "gateway.log"
        document = {
            "gateway": {
                "state_dir": str(state_dir),
                "slot": "500ms",
                "api": {"listen": "127.0.0.1:0"},
                "orphan_after": "120s",
                "memory": memory,
                **more,
            },
            "private": {"spark": dict(spark), **private},
            "cloud": {
                "provider": "process",
                "max_vms": 1,
                "boot": "1s",
                "warm": True,
                "billing": {"period": "10s", "minimum": "10s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
                "budget": {"usd_per_day": 5},
                **(cloud or {}),
            },
            # In order, however slow the machine is: after the default of 30 s, later results do not wait any longer.
            "queries": {name: {"order": {"flush": "10m"}, **query} for name, query in queries.items()},
        }
        with self.config.open("w") as file:
            YAML(typ="safe").dump(document, file)
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *options: str) -> None:
        """Start the process; until now another test's config may have owned the state_dir."""
        (self.state_dir / CLAIM_NAME).unlink(missing_ok=True)
        command = [sys.executable, "-m", "gateway", "run", str(self.config), "--keep-hosts"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--report", str(self.report), *options], stdout=log, stderr=subprocess.STDOUT
            )
        _STARTED.append(self.process)

    def wait(self, deadline_s: float = DEADLINE_S) -> int:
        """Return the exit code."""
        assert self.process is not None
        try:
            return self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the gateway did not end within {deadline_s:g} s:\n{self.tail()}") from None

    def run_until_drained(self) -> None:
        """Run to the end, which must be successful."""
        self.start("--until-drained")
        code = self.wait()
        assert code == 0, f"exit code {code}:\n{self.tail()}"

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to only the gateway process."""
        assert self.process is not None
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def tail(self) -> str:
        """Return the end of the log, as text."""
        return "\n".join(map(as_text, self.log.read_text().splitlines()))[-6000:]

    def peak_bytes(self) -> int:
        """Return the peak memory of the process up to now; 0 once it has ended."""
        assert self.process is not None
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * next((int(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM")), 0)

    # ------------------------------------------------------------------------------------------------- what is left

    def parts(self, query: str) -> list[PartName]:
        """Return the visible parts of a query's sink in order of release."""
        return parts_in(self.folder / "out" / query)

    def rows(self, query: str) -> list[dict[str, Any]]:
        """Return all result rows in order of release."""
        return rows_in(self.folder / "out" / query)

    def totals(self) -> dict[str, Any]:
        """Return the totals of the report."""
        return dict(json.loads(self.report.read_text())["totals"])

    def vm_pids(self) -> list[int]:
        """Return the processes of the VMs that the gateway has now."""
        records = [json.loads(path.read_text()) for path in (self.state_dir / "vms").glob("vm-*.json")]
        return [record["pid"] for record in records if record["stage"] == "running"]

    def home_pid(self) -> int:
        """Return the process of the private engine host."""
        (record,) = (self.state_dir / "home").glob("vm-*.json")
        return int(json.loads(record.read_text())["pid"])


def counts_by_lane(said: str) -> dict[str, int]:
    """Return the counts of a text such as ``home 1,200, vm-1 30``."""
    return {lane: int(count.replace(",", "")) for lane, count in re.findall(r"(\S+) ([\d,]*\d)", said)}


def parts_in(sink: Path) -> list[PartName]:
    """Return the visible parts of a sink in order of release."""
    if not sink.exists():
        return []
    parts = (PartName.parse(entry.name) for entry in sink.iterdir())
    return sorted((part for part in parts if part), key=lambda part: part.release)


def rows_in(sink: Path) -> list[dict[str, Any]]:
    """Return all rows of a JSON lines sink in order of release."""
    return [json.loads(line) for part in parts_in(sink) for line in (sink / str(part)).read_bytes().splitlines()]


def processes_with(text: str) -> list[int]:
    """Return the processes that have ``text`` in their command line."""
    return [p.pid for p in psutil.process_iter(["cmdline"]) if any(text in word for word in p.info["cmdline"] or ())]


def email_query(
    folder: Path, mail: Path, name: str, *, replay: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """Return the e-mail query (Q1 to Q4) as a config entry."""
    source: dict[str, Any] = {"type": "file", "path": str(mail)}
    if replay:
        source["replay"] = dict(replay)
    return {
        "source": source,
        "schema": SCHEMA_DDL,
        "sql": EMAIL_SQL,
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "1s"},
        **more,
    }


def metrics_query(folder: Path, upstream: str, name: str) -> dict[str, Any]:
    """Return Q5 over another query's results as a config entry."""
    return {
        "source": {"type": "query", "name": upstream},
        "schema": Q5_SCHEMA_DDL,
        "function": "engines.email.running:running_metrics",
        "runs": {"max_events": METRICS_RUN_EVENTS},
        "sink": {"type": "file", "path": str(folder / "out" / name)},
        "qos": {"latency": "5s"},
    }


def end_hosts(state_dir: Path) -> None:
    """End every engine host that was left running below a state_dir."""
    # Hosts that end by themselves remove their folders meanwhile: `rglob` would fail.
    for path in [
        Path(folder) / name for folder, _, names in os.walk(state_dir) for name in names if name == "host.json"
    ]:
        try:
            pid = json.loads(path.read_text())["pid"]
            os.kill(pid, signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError):
            continue
        proc = Path(f"/proc/{pid}")
        until(partial(_gone, proc), f"engine host {pid} ends", 120)


def _gone(path: Path) -> bool:
    return not path.exists()
