"""A query of the corpus in the gateway's own parts, with its files; and what became of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

from gateway.config import load
from gateway.config.queries import QueryConfig
from gateway.core.decide.profiler import Profiler
from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.query.flow.delivery import Pace
from gateway.query.flow.memory import MemoryPool
from gateway.query.running import RunningQuery
from infra.clock import SystemClock
from policies.signals import HOME
from tests.e2e.harness import rows_in
from tests.hybrid.cases import DDL, LATENESS, StreamCase
from tests.hybrid.events import RUN_EVENTS, SHOPS, SHOPS_DDL, Event, put_run
from tests.support.waiting import until

USER: Final = str(Path(__file__).parent / "user")
DEADLINE_S: Final = 240.0
AT_ONCE: Final = Pace(part_s=0.01, tick_s=0.005)
ONE_RUN_BYTES: Final = 2
"""With so little memory a query takes one run at a time: each is a micro-batch, wherever and however often it runs."""
SOME_RUNS_BYTES: Final = 1 << 21
CLOUD: Final = {
    "provider": "process",
    "max_vms": 1,
    "boot": "10s",
    "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
    "budget": {"usd_per_day": 5},
}


REOPENED_MOST: Final = 5


def is_busy(reason: str) -> bool:
    """Return whether a query failed only because Spark gives a Python worker 10 s to start, which is not its fault."""
    return "Python worker failed to connect back" in reason


class StuckError(Exception):
    """A query has failed, or does not go on; the message says why."""


@dataclass(frozen=True)
class Journey:
    """What became of a query.

    Attributes:
        rows: its results, each as text, with how often it came.
        away: how many events were answered on VMs.
        moves: how often it moved with its state.
        lost: how often the VM was lost while it used it.
        stays: why it may not leave home; empty if it may.
        switch_class: of its plan.
        stateful: whether it keeps state.
        keys: of its plan.
    """

    rows: Counter[str]
    away: int
    moves: int
    lost: int
    stays: str
    switch_class: str
    stateful: bool
    keys: tuple[str, ...]


class Site:
    """One query with its input, its state and its sink in one folder.

    Args:
        case: the query.
        folder: new.
        runs: the events of each run.
        home: where it is opened again.
        memory_bytes: what the query may hold.

    Attributes:
        kept_off: by the name of a lane, why it could not go there, or go on there.
        overdue: why it is to be opened again.
        reopened: how often it was opened again because the machine is busy.
    """

    def __init__(
        self, case: StreamCase, folder: Path, runs: Sequence[Sequence[Event]], home: Connection, memory_bytes: int
    ) -> None:
        (folder / "in").mkdir(parents=True)
        self._folder, self._runs, self._home = folder, runs, home
        self._written = 0
        self._events = 0
        self.kept_off: dict[str, str] = {}
        self.overdue: list[str] = []
        self.reopened = 0
        clock = SystemClock()
        self.query = RunningQuery(
            case.name,
            self._config(case),
            folder=folder / "state",
            code_path=USER if case.function else "",
            memory=MemoryPool(memory_bytes).share(),
            profiler=Profiler(1.0, {case.name: "mean"}),
            clock=clock,
            upstream=_no_upstream,
            on_failed=self._failed,
            on_overdue=lambda _query, reason: self.overdue.append(reason),
            pace=AT_ONCE,
        )

    def _failed(self, _query: str, lane: str, reason: str) -> None:
        self.kept_off.setdefault(lane, reason)

    def _config(self, case: StreamCase) -> QueryConfig:
        (self._folder / "shops.csv").write_text(SHOPS)
        query: dict[str, Any] = {
            "source": {"type": "file", "path": "in", "follow": True},
            "schema": DDL,
            "sink": {"type": "file", "path": "out"},
            "qos": {"latency": "2s"},
            "runs": {"max_events": 2 * RUN_EVENTS, "linger": "10ms"},
            "order": {"flush": "10m"},
            "switching": {"max_pause": "60s"},
            **case.more,
        }
        query["sql" if case.sql else "function"] = case.text
        if case.event_time:
            query["event_time"] = {"column": "at", "lateness": LATENESS}
        if "JOIN shops" in case.sql:
            query["tables"] = {"shops": {"path": "shops.csv", "format": "csv", "header": True, "schema": SHOPS_DDL}}
        document = {"gateway": {"state_dir": "state"}, "cloud": CLOUD, "queries": {case.name: query}}
        with (self._folder / "config.yaml").open("w") as file:
            YAML(typ="safe").dump(document, file)
        return load(self._folder / "config.yaml").queries[case.name]

    def write(self) -> None:
        """Let the next run appear."""
        run = self._runs[self._written]
        put_run(self._folder / "in", self._written, run)
        self._written += 1
        self._events += len(run)

    @property
    def is_committed(self) -> bool:
        """Whether all that was written has its results in the sink."""
        return self.query.committed_before >= self._events

    async def until(self, condition: Callable[[], bool], what: str, deadline_s: float = DEADLINE_S) -> None:
        """Wait for a state of the query; if it fails because the machine is busy, open it again, as a supervisor does.

        Raises:
            StuckError: the query has failed, or does not get there.
        """
        while True:
            try:
                await until(lambda: bool(self._failure) or condition(), what=what, deadline_s=deadline_s)
            except AssertionError as error:
                raise StuckError(str(error)) from error
            if not self._failure:
                return
            if not is_busy(self._failure) or self.reopened == REOPENED_MOST:
                raise StuckError(self._failure)
            self.reopened += 1
            await self.query.close_on_hosts()
            await self.query.stop()
            await self.open()

    async def open(self) -> None:
        """Open the query at home; if the host is too busy for that, again.

        Raises:
            QueryRefusedError: the host refuses it.
        """
        for _ in range(REOPENED_MOST):
            try:
                return await self.query.restart_home(self._home)
            except (QueryRefusedError, TimeoutError) as error:
                if not is_busy(str(error)) and not isinstance(error, TimeoutError):
                    raise
        return await self.query.restart_home(self._home)

    async def move(self) -> None:
        """Let the query move to where it is to be.

        Raises:
            QueryRefusedError: the host at home refuses it.
        """
        try:
            await self.query.move(self._home)
        except (QueryRefusedError, TimeoutError) as error:
            if not is_busy(str(error)) and not isinstance(error, TimeoutError):
                raise
            await self.open()

    @property
    def _failure(self) -> str:
        error = self.query.failure()
        if error is not None:
            return f"{type(error).__name__}: {error}"
        return self.overdue[0] if self.overdue else ""

    def journey(self, lost: int = 0) -> Journey:
        """Return what became of the query."""
        query, plan = self.query, self.query.plan
        assert plan is not None
        rows = Counter(json.dumps(row, sort_keys=True) for row in rows_in(self._folder / "out"))
        away = sum(events for lane, events in query.tally.events_by_lane.items() if lane != HOME)
        return Journey(
            rows,
            away,
            sum(mover.moves for mover in query.movers),
            lost,
            query.stays_home,
            plan.switch_class,
            plan.stateful,
            plan.keys,
        )


def _no_upstream(name: str) -> tuple[Path, Callable[[], bool]]:
    raise AssertionError(name)
