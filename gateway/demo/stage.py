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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import pyarrow as pa
from ruamel.yaml import YAML

from engines.email.mailbox import Mail
from engines.email.queries import EMAIL_SQL, SCHEMA_DDL
from gateway.config.configstate import CLAIM_NAME
from gateway.sources.files.mail import mail_table
from gateway.views.runrecord import GatewayRecord, read_record
from infra.clock import SystemClock
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
        whole = self.replayed(name, replay, query)
        with self.running(name, whole, boot_s, cold=cold, keep_hosts=keep_hosts, until_drained=True) as gateway:
            gateway.watch(on_status, lambda _: False, deadline_s)
        return gateway.record()

    def replayed(self, name: str, replay: Mapping[str, Any], query: Mapping[str, Any]) -> dict[str, Any]:
        """Return the config of a query over the replayed mail; see ``play``."""
        return {
            "source": {"type": "file", "path": str(self._folder / "mail.arrow"), "replay": dict(replay)},
            "schema": SCHEMA_DDL,
            "sql": EMAIL_SQL,
            "sink": {"type": "file", "path": str(self.sink(name))},
            **query,
        }

    @contextmanager
    def running(
        self,
        name: str,
        query: Mapping[str, Any],
        boot_s: float,
        *,
        cold: bool,
        keep_hosts: bool,
        until_drained: bool = False,
        private: Mapping[str, Any] = MappingProxyType({}),
    ) -> Iterator[StagedGateway]:
        """Run a gateway, which is ended if it still runs at the end.

        Args:
            name: of the run; its query has the same name.
            query: the query's config, but for its target.
            boot_s: see ``play``.
            cold: see ``play``.
            keep_hosts: see ``play``.
            until_drained: let it end by itself once its sources have ended.
            private: more of the config's part ``private``.
        """
        folder = self._folder / name
        folder.mkdir()
        port = _free_port()
        config, report, trace = folder / "config.yaml", folder / "record.json", folder / "trace.csv"
        with config.open("w") as file:
            YAML(typ="safe").dump(self.document(name, query, boot_s, port, cold=cold, private=private), file)
        # The runs share engine hosts by their state_dir, which belongs to one config at a time.
        (self._folder / "state" / CLAIM_NAME).unlink(missing_ok=True)
        command = [sys.executable, "-m", "gateway", "run", str(config), "--report", str(report), "--record", str(trace)]
        command += ["--until-drained"] if until_drained else []
        command += ["--keep-hosts"] if keep_hosts else []
        log = folder / "gateway.log"
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        gateway = StagedGateway(name, process, port, log, report)
        try:
            yield gateway
        finally:
            gateway.end()

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
        self,
        name: str,
        query: Mapping[str, Any],
        boot_s: float,
        port: int,
        *,
        cold: bool,
        private: Mapping[str, Any] = MappingProxyType({}),
    ) -> dict[str, Any]:
        """Return the config of a run; see ``running``."""
        cpus = available_cpus()
        return {
            "gateway": {"state_dir": str(self._folder / "state"), "slot": "1s", "api": {"listen": f"127.0.0.1:{port}"}},
            # The private engine and each VM have CPUs of their own; the gateway runs where there is room.
            "private": {
                "spark": {"master": "local[1]"},
                **({"cpus": str(cpus[0])} if len(cpus) > 1 else {}),
                **private,
            },
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
            "queries": {name: {"qos": {"latency": "2s"}, **query}},
        }


class StagedGateway:
    """A gateway of the demo, as a process.

    Args:
        name: of its run.
        process: the gateway.
        port: of its API.
        log: the file of its log.
        report: the file of its record.
    """

    def __init__(self, name: str, process: subprocess.Popen[bytes], port: int, log: Path, report: Path) -> None:
        self._name, self._process, self._port, self._report = name, process, port, report
        self.log = log

    def watch(
        self,
        on_status: Callable[[float, Mapping[str, Any]], None],
        is_over: Callable[[Mapping[str, Any]], bool],
        deadline_s: float,
    ) -> None:
        """Return once the gateway has ended, or it is over.

        Args:
            on_status: called a few times a second with (seconds since the call, the gateway's status).
            is_over: called with its status after that.
            deadline_s: how long it may take.

        Raises:
            StageError: it failed, or took too long.
        """
        clock = SystemClock()
        started_s = clock.now()
        while not self._ended(_POLL_S):
            elapsed_s = clock.now() - started_s
            if elapsed_s > deadline_s:
                raise StageError(f"run {self._name} of the demo did not end within {deadline_s:g} s:\n{self._tail()}")
            status = _status(self._port)
            on_status(elapsed_s, status)
            if is_over(status):
                return
        self._check()

    def end(self) -> None:
        """Let it drain and terminate its VMs; kill one that does not, and its hosts end by themselves."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        if not self._ended(_DRAIN_S):
            self._process.kill()
            self._process.wait()

    def record(self) -> GatewayRecord:
        """Return what it recorded; it has ended.

        Raises:
            StageError: it failed.
        """
        self._check()
        try:
            return read_record(self._report)
        except OSError as error:
            raise StageError(f"run {self._name} has no record: {error}\n{self._tail()}") from error

    def _check(self) -> None:
        if self._process.returncode != 0:
            raise StageError(f"the gateway of run {self._name} failed; its log {self.log} ends:\n{self._tail()}")

    def _tail(self) -> str:
        return self.log.read_text()[-2000:]

    def _ended(self, within_s: float) -> bool:
        try:
            self._process.wait(within_s)
        except subprocess.TimeoutExpired:
            return False
        return True


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
