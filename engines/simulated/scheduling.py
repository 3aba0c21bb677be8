"""The order in which the vertices of a VM run in a tick, and their instructions (CEPSim, III-B, step 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from engines.simulated.running import RunningVertex

_ROUNDS_MAX = 3
_DYNAMIC_ROUNDS_MAX = 100
_NOTHING = 1e-6
Queries = Sequence[Sequence[RunningVertex]]
"""The vertices of a VM by query; those of a query in topological order."""


class SchedulingStrategy(Protocol):
    """Divides the instructions of a VM's tick among its vertices."""

    def allocate(self, instructions: float, queries: Queries) -> Iterator[tuple[RunningVertex, float]]:
        """Yield the next vertex and its instructions; it has run when the following one is requested.

        Args:
            instructions: of the VM in this tick.
            queries: the vertices of the VM by query.
        """
        ...


class ProportionalToIpe:
    """CEPSim's default: each vertex once, with instructions in proportion to its ipe, needed or not.

    All queries of a VM have equal parts (CloudSim's time-sharing). Without weights, all vertices of a query can process
    the same number of events in a tick.

    Args:
        weights: the number of events that a vertex can process for each event of a vertex of weight 1; 1 by default.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})

    def allocate(self, instructions: float, queries: Queries) -> Iterator[tuple[RunningVertex, float]]:
        """See ``SchedulingStrategy``."""
        for vertices in queries:
            wanted = [self._weights.get(vertex.name, 1.0) * vertex.vertex.ipe for vertex in vertices]
            whole = sum(wanted) * len(queries)
            for vertex, part in zip(vertices, wanted, strict=True):
                yield vertex, instructions * (part / whole)


class DynamicShares:
    """CEPSim's dynamic strategy: as ``ProportionalToIpe``, but never more than needed, and in rounds.

    What a round leaves is given out in the next one, in which no vertex gets more than its share of the tick either.
    So vertices in need share what others leave by their weights. There are at most a hundred rounds.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._first = ProportionalToIpe(weights)

    def allocate(self, instructions: float, queries: Queries) -> Iterator[tuple[RunningVertex, float]]:
        """See ``SchedulingStrategy``."""
        left = instructions
        shares = list(self._first.allocate(instructions, queries))
        for number in range(_DYNAMIC_ROUNDS_MAX):
            before = left
            for vertex, most in shares:
                given = min(left, most, vertex.instructions_needed)
                if given > _NOTHING or number == 0:
                    left -= given
                    yield vertex, given
            if left <= _NOTHING or left == before:
                return


class WorkConserving:
    """As ``DynamicShares``, but after the first round each vertex in turn gets all that it needs of what is left.

    Vertices near the producers come first, and nothing is wasted while a vertex can use it.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._first = ProportionalToIpe(weights)

    def allocate(self, instructions: float, queries: Queries) -> Iterator[tuple[RunningVertex, float]]:
        """See ``SchedulingStrategy``."""
        left = instructions
        for vertex, most in self._first.allocate(instructions, queries):
            given = min(most, vertex.instructions_needed)
            left -= given
            yield vertex, given
        for _ in range(_ROUNDS_MAX):
            before = left
            for vertex in (vertex for vertices in queries for vertex in vertices):
                given = min(left, vertex.instructions_needed)
                if given > _NOTHING:
                    left -= given
                    yield vertex, given
            if left <= _NOTHING or left == before:
                return
