"""Carrying events from HTTP to files without losing one: a whole gateway whose engine does nothing."""

from __future__ import annotations

import http.client
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Protocol

import msgspec

from gateway.sinks.parts.filesink import PartName
from suite.row import Row, SideError
from suite.tax.clock import end, leave_cpu, log_told
from suite.tax.load import answer, plain, scaled
from suite.tax.programs import gateway_of
from suite.turns import OURS, Goal, Sample
from suite.whole.durable import DISK, EVENT_BYTES, RATE, by_disk
from suite.whole.rsyslog import Rsyslog
from tests.connectors.ports import free_port

SYNCED, IN_MEMORY = "rsyslog, synced", "rsyslog, in memory"
WARM_UP, EVENTS, SYNCED_EVENTS = 20_000, 60_000, 2_000
SENDERS, BODY_EVENTS = 4, 200
_WITHIN_S, _POLL_S = 120.0, 0.02
_MIB = 1 << 20


class Carrier(Protocol):
    """A running system that carries lines to files."""

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines; return when all are acknowledged."""

    def carried(self) -> int:
        """Return how many lines are in files."""

    def lines(self) -> list[bytes]:
        """Return what is in files."""

    def close(self) -> None:
        """End it."""


class PostedGateway:
    """A gateway that gets lines by POST, from several senders at once.

    Args:
        folder: for its files.
        log: its output.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._out, self._port = folder / "out", free_port()
        work = plain()
        query = {
            "source": {"type": "http", "listen": f"127.0.0.1:{self._port}"},
            "schema": work.schema,
            "sql": work.sql,
            "sink": {"type": "file", "path": str(self._out)},
            "qos": {"latency": "2s"},
            "switching": {"mode": "off"},
        }
        self._process = gateway_of(folder, {"posted": query}, log, module=("suite.whole.gateway",))

    def send(self, lines: Sequence[bytes]) -> None:
        """See ``Carrier``."""
        bodies = [b"\n".join(lines[at : at + BODY_EVENTS]) for at in range(0, len(lines), BODY_EVENTS)]
        with ThreadPoolExecutor(SENDERS) as senders:
            list(senders.map(self._post_all, (bodies[at::SENDERS] for at in range(SENDERS))))

    def _post_all(self, bodies: Sequence[bytes]) -> None:
        ends_s = time.monotonic() + _WITHIN_S
        link = http.client.HTTPConnection("127.0.0.1", self._port, timeout=_WITHIN_S)
        for body in bodies:
            while not self._accepted(link, body):
                if self._process.poll() is not None or time.monotonic() > ends_s:
                    raise SideError("the gateway ended, or accepts nothing")
                time.sleep(_POLL_S)
        link.close()

    def _accepted(self, link: http.client.HTTPConnection, body: bytes) -> bool:
        """Return whether the gateway has answered that it has the events; it may not listen yet, or be full."""
        try:
            link.request("POST", "/events", body)
            reply = link.getresponse()
            said = reply.read()
        except ConnectionRefusedError:
            link.close()
            return False
        if reply.status not in (http.client.SERVICE_UNAVAILABLE, http.client.TOO_MANY_REQUESTS):
            if reply.status >= http.client.BAD_REQUEST:
                raise SideError(f"the gateway answered {reply.status} {said.decode()}")
            return True
        return False

    def _parts(self) -> list[tuple[PartName, Path]]:
        found = ((PartName.parse(path.name), path) for path in self._out.glob("*.jsonl"))
        return sorted(((name, path) for name, path in found if name is not None), key=lambda pair: pair[0].release)

    def carried(self) -> int:
        """See ``Carrier``."""
        parts = self._parts()
        return parts[-1][0].last_seq + 1 if parts else 0

    def lines(self) -> list[bytes]:
        """See ``Carrier``."""
        return [line for _, path in self._parts() for line in path.read_bytes().splitlines()]

    def close(self) -> None:
        """See ``Carrier``."""
        end(self._process)


def _measured(start: Callable[[Path, Path], Carrier], warm_up: int, events: int) -> tuple[float, list[bytes]]:
    """Return MiB/s from the first event that is sent to the last one in a file, and what came out."""
    work = plain()
    with tempfile.TemporaryDirectory(prefix="spillway-bench-") as name:
        log = Path(name) / "log"
        carrier = start(Path(name), log)
        leave_cpu()
        try:
            with log_told(log):
                carrier.send([work.event(at, at) for at in range(warm_up)])
                _wait(carrier, warm_up)
                lines = [work.event(at, at) for at in range(events)]
                begun_s = time.perf_counter()
                carrier.send(lines)
                _wait(carrier, warm_up + events)
                took_s = time.perf_counter() - begun_s
                return events * EVENT_BYTES / _MIB / took_s, carrier.lines()[warm_up:]
        finally:
            carrier.close()


def _wait(carrier: Carrier, count: int) -> None:
    ends_s = time.monotonic() + _WITHIN_S
    while (carried := carrier.carried()) < count:
        if time.monotonic() > ends_s:
            raise SideError(f"{carried:,} of {count:,} events came")
        time.sleep(_POLL_S)


def _sample(start: Callable[[Path, Path], Carrier]) -> Sample:
    rate, lines = _measured(start, scaled(WARM_UP), scaled(EVENTS))
    return Sample({RATE: rate}, answer((msgspec.json.decode(line) for line in lines), plain()))


def ours() -> Sample:
    """Measure a whole gateway without Spark: source with its journal, run log, link, reorder buffer, file sink."""
    return _sample(PostedGateway)


def by_synced_rsyslog() -> Sample:
    """Measure an rsyslog that acknowledges a line once it is on the disk; of fewer events, as each waits for it."""
    events = scaled(SYNCED_EVENTS)
    return Sample({RATE: _measured(partial(Rsyslog, safe=True), events // 10, events)[0]})


def by_rsyslog() -> Sample:
    """Measure an rsyslog that acknowledges a line once it is in its memory."""
    return _sample(partial(Rsyslog, safe=False))


ROW = Row(
    name="posted",
    title="from HTTP to files, nothing lost: events of 1 kB on one core",
    sides={OURS: ours, SYNCED: by_synced_rsyslog, IN_MEMORY: by_rsyslog, DISK: by_disk},
    goals=(Goal(RATE, SYNCED, 1.0), Goal(RATE, IN_MEMORY, 1.0), Goal(RATE, None, 75.0)),
    note="A whole gateway with its engine host, which runs without Spark and sends each run back. Four senders post "
    "200 events at a time and wait for the answer, which comes when they are on the disk. rsyslog gets them by RELP, "
    "256 ahead; synced, it acknowledges an event once it is on the disk, else once it is in memory. 60,000 after "
    "20,000 that warm up (synced: 2,000 after 200); results are compared, but not those of the synced one.",
)
