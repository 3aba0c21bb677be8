"""In which order the vertices of a VM run in a tick, and with how many instructions (CEPSim, III-B, step 2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from engines.simulated.running import RunningVertex

_ROUNDS_MAX = 3
_NOTHING = 1e-6


class SchedulingStrategy(Protocol):
    """Shares out the instructions of a VM's tick."""

    def allocate(self, instructions: float, vertices: Sequence[RunningVertex]) -> Iterator[tuple[RunningVertex, float]]:
        """Yield who runs next and with how many instructions; it has run when the next is asked for.

        Args:
            instructions: of the VM in this tick.
            vertices: of the VM, in topological order.
        """
        ...


class ProportionalToIpe:
    """CEPSim's default: each vertex once, with instructions in proportion to its ipe, needed or not.

    Without weights each vertex can process as many events as any other in a tick.

    Args:
        weights: events that a vertex can process for each that one of weight 1 can; 1 if not named.
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
    """First as ``ProportionalToIpe`` but never more than needed; what is left goes round to who still needs it."""

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
