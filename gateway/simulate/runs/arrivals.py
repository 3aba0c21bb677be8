"""The load of a simulated query, cut into runs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from engines.simulated.generators import Poisson
from gateway.query.flow.linger import Linger
from gateway.query.flow.run import Run
from gateway.simulate.options import QueryOptions
from policies.arrays import Array
from policies.queueing.sketch import GapSketch
from policies.switching.shedding import Sampler

_ALMOST = 1e-6
# A full run is closed late by at most this part of ``run_s``.
_LOOKS = 0.1
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
Rows = Callable[[int, float], pa.RecordBatch]


def no_rows(_events: int, _until_s: float) -> pa.RecordBatch:
    """Return none: most simulated events have no content."""
    return _NO_ROWS


@runtime_checkable
class Stamped(Protocol):
    """A load that knows when each event comes."""

    def arrivals_s(self, from_s: float, to_s: float) -> Array:
        """Return when events come at ``from_s`` or later but before ``to_s``, ascending."""
        ...


class Arrivals:
    """The events of one query, cut into runs as by ``Ingress``.

    Args:
        options: the query and its load.
        seed: of random draws.
        since_s: when the load begins.
        rows: returns the rows of so many events, the last of which came at this time; none by default.

    Attributes:
        sampler: decides which part is shed.
        next_seq: the seq of the next event.
        gaps: the times between events.
    """

    def __init__(self, options: QueryOptions, seed: int, since_s: float, rows: Rows = no_rows) -> None:
        self._rows = rows
        self.sampler = Sampler()
        self.next_seq = 0
        self._options = options
        name = options.settings.name
        self._draw = random.Random(f"query {seed} {name}")  # noqa: S311  # no secret
        draw = np.random.default_rng([seed, int.from_bytes(name.encode())])
        self._load = Poisson(options.load, draw) if options.poisson else options.load
        self.gaps = GapSketch(seed)
        self._places = np.random.default_rng([seed, 2, int.from_bytes(name.encode())]) if options.poisson else None
        self._came_events = 0.0
        self._due_events = self._per_s = 0.0
        self._open_since_s = self._read_s = since_s
        self._shed_since = 0

    @property
    def unread(self) -> tuple[int, float]:
        """How many events are due and in no run yet, and the earliest time at which the first was due."""
        return int(self._due_events + _ALMOST), self._open_since_s

    def full_runs(self, to_s: float) -> Iterator[Run]:
        """Take the arrivals since the last call, and yield the full runs."""
        span_s, from_s, self._read_s = to_s - self._read_s, self._read_s, to_s
        events = self._load.events(from_s, to_s)
        self._per_s = events / span_s if span_s > 0 else 0.0
        self._due_events += events
        self.gaps.add(self._arrivals_s(from_s, to_s, events))
        most = self._options.run_events
        while self._due_events >= most:
            over_s = (self._due_events - most) / self._per_s if self._per_s > 0 else 0.0
            yield from self._cut(most, to_s - min(over_s, span_s))

    def _arrivals_s(self, from_s: float, to_s: float, events: float) -> Array:
        """Return when events came: anywhere if their number was drawn, else at equal distances."""
        if isinstance(self._options.load, Stamped):
            return self._options.load.arrivals_s(from_s, to_s)
        before, self._came_events = self._came_events, self._came_events + events
        first, last = int(before + _ALMOST) + 1, int(self._came_events + _ALMOST)
        if self._places is not None:
            return self._places.uniform(from_s, to_s, last - first + 1)
        return np.asarray(from_s + (np.arange(first, last + 1) - before) * ((to_s - from_s) / max(events, _ALMOST)))

    def lingered(self, linger_s: float) -> bool:
        """Return whether the open run has been open for this long."""
        return self._read_s - self._open_since_s >= linger_s - _ALMOST

    def rest(self) -> Iterator[Run]:
        """Yield the open run, if it has any events."""
        return self._cut(self.unread[0], self._read_s)

    def look_again_s(self, linger_s: float) -> float:
        """Return when the open run will be full, at this rate, or will have lingered."""
        options = self._options
        least_s, most_s = _LOOKS * options.run_s, self._open_since_s + linger_s - self._read_s
        full_s = (options.run_events - self._due_events) / self._per_s if self._per_s > 0 else most_s
        return self._read_s + min(max(full_s, least_s), max(most_s, least_s), options.run_s)

    def _cut(self, due: int, until_s: float) -> Iterator[Run]:
        """Yield a run of the oldest ``due`` events, the last of which came at ``until_s``, unless all are shed."""
        options = self._options
        from_s, self._open_since_s = self._open_since_s, until_s
        self._due_events -= due
        shed = self.sampler.shed(due)
        self._shed_since += shed
        events = due - shed
        if events:
            shed, self._shed_since = self._shed_since, 0
            disordered = self._draw.random() < options.disordered
            first, last = self.next_seq, self.next_seq + events - 1
            self.next_seq += events
            arrival_s, raw_bytes = (from_s + until_s) / 2, events * options.event_bytes
            yield Run(first, last, self._rows(events, until_s), arrival_s, raw_bytes, disordered, shed)


class SimulatedIngress:
    """Closes runs when they are full or have lingered, as ``Ingress`` does.

    Args:
        arrivals: the events.
        run_s: how long a run lingers while the query is not behind.
        batch_runs: how many runs one micro-batch takes.
        backlog: returns how many runs wait, and the rate of each lane in events/s; 0 before its first answer.
        on_run: called with each run.
    """

    def __init__(
        self,
        arrivals: Arrivals,
        run_s: float,
        batch_runs: int,
        backlog: Callable[[], tuple[int, Iterable[float]]],
        on_run: Callable[[Run], None],
    ) -> None:
        self._arrivals = arrivals
        self._linger = Linger(run_s, batch_runs)
        self._backlog = backlog
        self._on_run = on_run
        self._served_per_s = 0.0

    @property
    def _linger_s(self) -> float:
        waiting_runs, rates = self._backlog()
        # A lost lane's rate is remembered.
        self._served_per_s = min((rate for rate in rates if rate > 0), default=self._served_per_s)
        return self._linger.next_s(waiting_runs, self._served_per_s)

    def arrive(self, to_s: float) -> float:
        """Read the arrivals since the last call; close the runs that are full or have lingered.

        Returns:
            When to look again.
        """
        self._close(self._arrivals.full_runs(to_s))
        linger_s = self._linger_s
        if self._arrivals.lingered(linger_s):
            self._close(self._arrivals.rest())
            linger_s = self._linger_s
        return self._arrivals.look_again_s(linger_s)

    def finish(self, to_s: float) -> None:
        """Close the last run: no event comes after it."""
        self.arrive(to_s)
        self._close(self._arrivals.rest())

    def _close(self, runs: Iterable[Run]) -> None:
        for run in runs:
            self._linger.cut(run.events)
            self._on_run(run)
