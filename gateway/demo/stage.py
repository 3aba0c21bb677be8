"""The demo's stage: a folder with the mail, configs and states, and real gateway processes that use it."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from ruamel.yaml import YAML

from engines.email.mailbox import Mail
from engines.email.queries import EMAIL_SQL, SCHEMA_DDL
from gateway.config.configstate import CLAIM_NAME
from gateway.sources.files.mail import mail_table
from gateway.views.runrecord import GatewayRecord, read_record
from infra.clock import Clock, SystemClock
from infra.clouds.cpus import available_cpus
from infra.clouds.process import ProcessCloud

BILLING_PERIOD_S: Final = 20
MAX_VMS: Final = 1
LINK_DELAY_MS: Final = 35
LINK_MBIT_PER_S: Final = 40
BOOT_S: Final = 5
COLD_BOOT_S: Final = 25
_POLL_S: Final = 0.25
_STATUS_WITHIN_S: Final = 1.0
_DRAIN_S: Final = 30.0


class StageError(Exception):
    """A gateway of the demo failed; the message contains the end of its log."""


class Stage:
    """Runs queries of the demo, one gateway after the other over the same engine hosts.

    Args:
        folder: created anew; the caller removes an old one.
        mails: the base that is repeated.
        namespaces: of the VMs, with the address of each; None runs them behind a shaped link.
    """

    def __init__(self, folder: Path, mails: Sequence[Mail], namespaces: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._namespaces = namespaces
        folder.mkdir(parents=True)
        table = mail_table(mails)
        with pa.ipc.new_file(folder / "mail.arrow", table.schema) as writer:
            writer.write_table(table)

    def sink(self, name: str) -> Path:
        """Return the folder of a run's results."""
        return self._folder / name / "results"

    def play(
        self,
        name: str,
        replay: Mapping[str, Any],
        query: Mapping[str, Any],
        on_status: Callable[[float, Mapping[str, Any]], None],
        *,
        boot_s: float,
        cold: bool,
        keep_hosts: bool,
        deadline_s: float,
    ) -> GatewayRecord:
        """Run a gateway until it has drained, and return what it recorded.

        Args:
            name: of the run; its query has the same name.
            replay: the source's ``replay``.
            query: the rest of the query's config.
            on_status: called a few times a second with (seconds since the start, the gateway's status).
            boot_s: emulated boot time of a VM; with ``cold`` what the gateway expects at first.
            cold: whether a VM starts its Spark only once it is ordered; otherwise it is a host that is warm.
            keep_hosts: leave the engine hosts running for the next run.
            deadline_s: the gateway is ended after this time.

        Raises:
            StageError: it failed, or took too long.
        """
        folder = self._folder / name
        folder.mkdir()
        port = _free_port()
        config, report, trace = folder / "config.yaml", folder / "record.json", folder / "trace.csv"
        with config.open("w") as file:
            YAML(typ="safe").dump(self.document(name, replay, query, boot_s, port, cold=cold), file)
        # The runs share engine hosts by their state_dir, which belongs to one config at a time.
        (self._folder / "state" / CLAIM_NAME).unlink(missing_ok=True)
        command = [sys.executable, "-m", "gateway", "run", str(config), "--until-drained"]
        command += ["--report", str(report), "--record", str(trace)]
        log = folder / "gateway.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *(["--keep-hosts"] if keep_hosts else [])], stdout=output, stderr=subprocess.STDOUT
            )
        try:
            _watch(process, port, on_status, deadline_s, SystemClock())
        except BaseException:
            _end(process)
            raise
        if process.returncode != 0:
            raise StageError(f"the gateway of run {name} failed; its log {log} ends:\n{log.read_text()[-2000:]}")
        return read_record(report)

    def forget(self, name: str) -> None:
        """Remove the results of a run."""
        shutil.rmtree(self.sink(name))

    def clear(self) -> None:
        """End every engine host that is left."""
        asyncio.run(self._end_hosts())

    async def _end_hosts(self) -> None:
        for registry in ("home", "vms"):
            cloud = ProcessCloud(self._folder / "state" / registry, SystemClock(), max_vms=MAX_VMS)
            for node in await cloud.list({}):
                await cloud.destroy(node.id)
            await cloud.close()

    def _distance(self) -> dict[str, Any]:
        if self._namespaces is not None:
            return {"namespaces": dict(self._namespaces)}
        return {"emulate_link": {"delay": f"{LINK_DELAY_MS}ms", "rate": f"{LINK_MBIT_PER_S}Mbit/s"}}

    def document(
        self, name: str, replay: Mapping[str, Any], query: Mapping[str, Any], boot_s: float, port: int, *, cold: bool
    ) -> dict[str, Any]:
        """Return the config of a run; see ``play``."""
        cpus = available_cpus()
        return {
            "gateway": {"state_dir": str(self._folder / "state"), "slot": "1s", "api": {"listen": f"127.0.0.1:{port}"}},
            # The private engine and each VM have CPUs of their own; the gateway runs where there is room.
            "private": {"spark": {"master": "local[1]"}, **({"cpus": str(cpus[0])} if len(cpus) > 1 else {})},
            "cloud": {
                "provider": "process",
                "max_vms": MAX_VMS,
                "boot": f"{boot_s:g}s",
                "warm": not cold,
                "billing": {
                    "period": f"{BILLING_PERIOD_S}s",
                    "minimum": f"{BILLING_PERIOD_S}s",
                    "usd_per_hour": 0.10,
                    "usd_per_gb_sent": 0.09,
                },
                "budget": {"usd_per_day": 5},
                **self._distance(),
            },
            "queries": {
                name: {
                    "source": {"type": "file", "path": str(self._folder / "mail.arrow"), "replay": dict(replay)},
                    "schema": SCHEMA_DDL,
                    "sql": EMAIL_SQL,
                    "sink": {"type": "file", "path": str(self.sink(name))},
                    "qos": {"latency": "2s"},
                    **query,
                }
            },
        }


def _watch(
    process: subprocess.Popen[bytes],
    port: int,
    on_status: Callable[[float, Mapping[str, Any]], None],
    deadline_s: float,
    clock: Clock,
) -> None:
    started_s = clock.now()
    while not _ended(process, _POLL_S):
        elapsed_s = clock.now() - started_s
        if elapsed_s > deadline_s:
            raise StageError(f"a gateway of the demo did not end within {deadline_s:g} s")
        on_status(elapsed_s, _status(port))


def _ended(process: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """Let a gateway drain and terminate its VMs; kill one that does not, and its hosts end by themselves."""
    process.send_signal(signal.SIGTERM)
    if not _ended(process, _DRAIN_S):
        process.kill()
        process.wait()


def _status(port: int) -> Mapping[str, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=_STATUS_WITHIN_S) as answer:
            return dict(json.load(answer))
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return {"phase": "starting", "vms": {}, "queries": {}}


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
