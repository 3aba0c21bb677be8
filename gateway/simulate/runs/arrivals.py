"""The load of a simulated query, cut into runs."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from engines.simulated.generators import Poisson
from gateway.query.flow.run import Run
from gateway.simulate.options import QueryOptions
from policies.switching.shedding import Sampler

_ALMOST = 1e-6
_NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))


class Arrivals:
    """What comes from the source of one query.

    Args:
        options: the query and its load.
        seed: of what it draws.

    Attributes:
        sampler: says which part is shed.
        next_seq: the seq of the next event.
    """

    def __init__(self, options: QueryOptions, seed: int) -> None:
        self.sampler = Sampler()
        self.next_seq = 0
        self._options = options
        name = options.settings.name
        self._draw = random.Random(f"query {seed} {name}")  # noqa: S311  # no secret
        draw = np.random.default_rng([seed, int.from_bytes(name.encode())])
        self._load = Poisson(options.load, draw) if options.poisson else options.load
        self._due_events = 0.0
        self._open_since_s: float | None = None
        self._shed_since = 0

    def arrive(self, from_s: float, to_s: float, linger_s: float) -> bool:
        """Take what came in this time; return whether the open run is to be cut: it is full, or open for so long."""
        self._due_events += self._load.events(from_s, to_s)
        if self._open_since_s is None:
            self._open_since_s = from_s
        return to_s - self._open_since_s >= linger_s - _ALMOST or self._due_events >= self._options.run_events

    def cut(self, to_s: float) -> Iterator[Run]:
        """Yield what is open as runs."""
        options = self._options
        from_s = to_s if self._open_since_s is None else self._open_since_s
        self._open_since_s = None
        left = int(self._due_events + _ALMOST)
        self._due_events -= left
        shed = self.sampler.shed(left)
        self._shed_since += shed
        left -= shed
        while left > 0:
            events = min(left, options.run_events)
            left -= events
            shed, self._shed_since = self._shed_since, 0
            disordered = self._draw.random() < options.disordered
            first, last = self.next_seq, self.next_seq + events - 1
            self.next_seq += events
            arrival_s, raw_bytes = (from_s + to_s) / 2, events * options.event_bytes
            yield Run(first, last, _NO_ROWS, arrival_s, raw_bytes, disordered, shed)
