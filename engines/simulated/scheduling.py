"""The order in which the vertices of a VM run in a tick, and their instructions (CEPSim, III-B, step 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from engines.simulated.running import RunningVertex

_ROUNDS_MAX = 3
_NOTHING = 1e-6


class SchedulingStrategy(Protocol):
    """Divides the instructions of a VM's tick among its vertices."""

    def allocate(self, instructions: float, vertices: Sequence[RunningVertex]) -> Iterator[tuple[RunningVertex, float]]:
        """Yield the next vertex and its instructions; it has run when the following one is requested.

        Args:
            instructions: of the VM in this tick.
            vertices: of the VM, in topological order.
        """
        ...


class ProportionalToIpe:
    """CEPSim's default: each vertex once, with instructions in proportion to its ipe, needed or not.

    Without weights all vertices can process the same number of events in a tick.

    Args:
        weights: the number of events that a vertex can process for each event of a vertex of weight 1; 1 by default.
    """

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._weights = dict(weights or {})

    def allocate(self, instructions: float, vertices: Sequence[RunningVertex]) -> Iterator[tuple[RunningVertex, float]]:
        """See ``SchedulingStrategy``."""
        for vertex, part in zip(vertices, self._parts(vertices), strict=True):
            yield vertex, instructions * part

    def _parts(self, vertices: Sequence[RunningVertex]) -> list[float]:
        wanted = [self._weights.get(vertex.name, 1.0) * vertex.vertex.ipe for vertex in vertices]
        whole = sum(wanted)
        return [instructions / whole for instructions in wanted]


class WorkConserving:
    """As ``ProportionalToIpe``, but never more than needed; the rest goes round to vertices that still need some."""

    def __init__(self, weights: Mapping[str, float] | None = None) -> None:
        self._first = ProportionalToIpe(weights)

    def allocate(self, instructions: float, vertices: Sequence[RunningVertex]) -> Iterator[tuple[RunningVertex, float]]:
        """See ``SchedulingStrategy``."""
        left = instructions
        for vertex, most in self._first.allocate(instructions, vertices):
            given = min(most, vertex.instructions_needed)
            left -= given
            yield vertex, given
        for _ in range(_ROUNDS_MAX):
            before = left
            for vertex in vertices:
                given = min(left, vertex.instructions_needed)
                if given > _NOTHING:
                    left -= given
                    yield vertex, given
            if left <= _NOTHING or left == before:
                return
