"""A query with selections of a simulated world; the gateway is killed at random times, and goes on from its run log."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from gateway.connectors.position import Position
from gateway.core.exchange import Exchange
from gateway.core.exchange.instructions import Release
from gateway.core.intervals import IntervalSet
from gateway.query.flow.run import Run
from gateway.query.flow.runlog import LoggedRuns, LogHead, RunRecord, SelectionMark
from gateway.query.flow.selecting.selector import Selector, selector_for
from gateway.simulate.options import Machines, QueryOptions, SelectionLoad
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost
from gateway.simulate.runs.simulatedquery import SimulatedQuery
from gateway.simulate.runs.witness import Witness
from infra.messages import SELECTIONS
from infra.payload.caching.encoding import CACHE_BYTES
from infra.payload.caching.placement import Int64Array, Marks, placed
from policies.signals import HOME

_DOWN_S: Final = (1.0, 6.0)
_MOST_BYTES: Final = 1 << 40
_NO_SEQS: Final = np.zeros(0, dtype=np.int64)
_NO_MARKS: Final = Marks(_NO_SEQS, _NO_SEQS, _NO_SEQS)


class SelectingQuery(SimulatedQuery):
    """Gives each run the events of the selections that it closes, with the production selector.

    Its source and its run log survive when the gateway is killed; runs that the sink does not have are cut again.

    Args:
        options: the query and its load.
        selections: what its events become.
        seed: of random draws.
        rest: see ``SimulatedQuery``.
    """

    def __init__(self, options: QueryOptions, selections: SelectionLoad, seed: int, *rest: Any) -> None:
        super().__init__(options, seed, *rest)
        self._load = selections
        self._log = LoggedRuns(LogHead("", 0.0))
        self._source: dict[int, pa.RecordBatch] = {}
        self._committed = IntervalSet()
        self._results: list[pa.RecordBatch] = []
        self._selector = self._begin_selector()
        self._hosts: dict[str, SimulatedEngineHost] = {}
        self._drained: set[str] = set()
        # The lanes' event caches, and the bytes of runs in lanes.
        self._cached: dict[str, Int64Array] = {}
        self._payloads: dict[tuple[str, int], tuple[int, Int64Array]] = {}
        self._shares: Mapping[str, float] = {HOME: 1.0}
        self._down = self._ends = False
        self._finished_s: float | None = None
        self._draw = random.Random(f"kills {seed} {self.name}")  # noqa: S311  # no secret
        self._expect_kill()

    def _begin_selector(self) -> Selector:
        load, committed_before = self._load, self._committed.watermark()
        selector = selector_for(load.rule, load.conditions, self._log, committed_before, 0, _MOST_BYTES)
        assert selector is not None
        return selector

    # --------------------------------------------------------------------------------------------------------- events

    def arrive(self, to_s: float) -> float:
        """See ``SimulatedQuery``; a gateway that is down reads nothing."""
        return to_s + self.options.run_s if self._down else super().arrive(to_s)

    def finish(self, to_s: float) -> None:
        """See ``SimulatedQuery``."""
        self._ends = True
        if self._down:
            self._finished_s = to_s
        else:
            super().finish(to_s)

    def _take(self, run: Run) -> None:
        selected = self._select(run)
        mark = self._selector.mark
        record = RunRecord(
            run.first_seq, run.last_seq, Position(), Position(), run.arrival_s, run.disordered, selections=mark
        )
        self._log.runs.append(record)
        self._source[run.first_seq] = run.batch
        super()._take(selected)

    def _select(self, run: Run, logged: SelectionMark | None = None) -> Run:
        found = self._selector.select(run.batch, logged)
        return replace(
            run,
            batch=found.batch,
            raw_bytes=found.batch.nbytes,
            selected=found.seqs,
            fresh=found.fresh,
            open_from=found.open_from,
        )

    # ---------------------------------------------------------------------------------------------------------- kills

    def _expect_kill(self) -> None:
        if self._load.killed_per_s and not self._ends:  # with kills for ever, the world would not come to rest
            self._agenda.after(self._draw.expovariate(self._load.killed_per_s), self._kill)

    def _kill(self) -> None:
        if self._ends and self.idle:
            return  # the world comes to rest
        self._trace.note(f"fault: the gateway is killed, and {self.name} with it")
        for lane in self.lanes.values():
            lane.closed = True
        self.lanes.clear()
        self._cached, self._payloads = {}, {}
        self._down = True
        self._agenda.after(self._draw.uniform(*_DOWN_S), self._begin)

    def _begin(self) -> None:
        """Go on with what the run log, the source and the sink have."""
        before, now_s = self._committed.watermark(), self._agenda.now_s
        self._released_again_events += self._released_events - before
        self._released, self._released_events, self._highest_seq = IntervalSet(self._committed), before, before - 1
        self._undone, self._undone_events, self._held_events = {}, 0, 0
        self._outbox, self._results = [], []
        settings = self.options.exchange_settings(self._patience, HOME)
        self.exchange = Exchange(settings, committed=list(self._committed))
        self._witness = Witness(self.options, done_before=before, since_s=now_s)
        self._selector = self._begin_selector()
        for record in self._log.runs:
            if record.first_seq >= self._selector.begin_seq:
                self._cut_again(record, before)
        self._down = False
        self._open_lanes()
        if self._finished_s is not None:
            super().finish(self._finished_s)
            self._finished_s = None
        self._expect_kill()

    def _cut_again(self, record: RunRecord, committed_before: int) -> None:
        first_seq, batch = record.first_seq, self._source[record.first_seq]
        run = Run(first_seq, record.last_seq, batch, record.arrival_wall_s, batch.nbytes, record.disordered)
        run = self._select(run, record.selections)
        if record.first_seq >= committed_before:
            super()._take(run)

    # ---------------------------------------------------------------------------------------------------------- lanes

    def _open_lanes(self) -> None:
        super().set_shares(self._shares)
        for host in self._hosts.values():
            super().add_lane(host)
        for name in self._drained & self._hosts.keys():
            super().drain_lane(name)

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """See ``SimulatedQuery``."""
        self._shares = dict(shares)
        if not self._down:
            super().set_shares(shares)

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """See ``SimulatedQuery``."""
        self._hosts[host.name] = host
        if not self._down:
            super().add_lane(host)

    def remove_lane(self, name: str, reason: str) -> None:
        """See ``SimulatedQuery``."""
        self._hosts.pop(name, None)
        self._forget_cache(name)
        super().remove_lane(name, reason)

    def drain_lane(self, name: str) -> None:
        """See ``SimulatedQuery``."""
        self._drained.add(name)
        if not self._down:
            super().drain_lane(name)

    def _forget_cache(self, lane: str) -> None:
        self._cached.pop(lane, None)
        self._payloads = {key: each for key, each in self._payloads.items() if key[0] != lane}

    def payload_bytes(self, lane: str, run: Run) -> int:
        """See ``SimulatedQuery``; events that the lane has are not sent."""
        key = lane, run.first_seq
        if key not in self._payloads:
            assert run.selected is not None
            cached = self._cached.get(lane, _NO_SEQS)
            most_events = CACHE_BYTES * max(1, len(run.selected)) // max(1, run.raw_bytes)
            found = placed(cached, run.selected, run.open_from, most_events, _NO_MARKS)
            new_part = float(found.is_new.mean()) if len(found.is_new) else 0.0
            self._payloads[key] = round(super().payload_bytes(lane, run) * new_part), found.cached
        return self._payloads[key][0]

    def sends(self, lane: str, run: Run) -> int:
        """See ``SimulatedQuery``."""
        sent_bytes = super().sends(lane, run)
        self._cached[lane] = self._payloads[lane, run.first_seq][1]
        return sent_bytes

    def work_s(self, run: Run, machines: Machines, lane_runs: int) -> float:  # noqa: ARG002 -- a micro-batch is one run
        """See ``SimulatedQuery``; a host works on each event once for each of its selections."""
        batch_s, event_s = self.options.costs_s(machines)
        lengths = run.batch.column(SELECTIONS).field(1).to_numpy(zero_copy_only=False)
        return batch_s + float(lengths.sum()) * event_s

    # ------------------------------------------------------------------------------------------------------- delivery

    def _released_now(self, release: Release[Reply]) -> None:
        super()._released_now(release)
        assert isinstance(release.results.results, pa.RecordBatch)
        self._results.append(release.results.results)

    def _commit(self) -> None:
        if self._down or not self._outbox:  # a kill was faster
            return
        for first, last in self._outbox:
            self._committed.add(first, last)
        for batch in self._results:
            self._load.deliver(batch)
        self._results = []
        self._log.forget(self._log.needed_from(self._committed.watermark()))
        self._source = {run.first_seq: self._source[run.first_seq] for run in self._log.runs}
        before = self._committed.watermark()
        self._payloads = {key: each for key, each in self._payloads.items() if key[1] >= before}
        super()._commit()

    def end_slot(self) -> None:
        """See ``SimulatedQuery``."""
        if not self._down:
            super().end_slot()

    # ------------------------------------------------------------------------------------------------------- promises

    @property
    def idle(self) -> bool:
        """See ``SimulatedQuery``."""
        return not self._down and super().idle

    def check(self) -> None:
        """See ``SimulatedQuery``."""
        if not self._down:
            super().check()

    def check_all(self, *, thorough: bool = False) -> None:
        """See ``SimulatedQuery``."""
        if not self._down:
            super().check_all(thorough=thorough)

    def check_slot(self) -> None:
        """See ``SimulatedQuery``."""
        if not self._down:
            super().check_slot()
