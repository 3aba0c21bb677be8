"""Where vertices run: VMs, the network between them, and strategies that place queries."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

from engines.simulated.query import QueryGraph


@dataclass(frozen=True, slots=True)
class SimulatedVm:
    """A machine that executes ``mips`` million instructions a second, from ``ready_s`` until ``ends_s``.

    Attributes:
        name: differs from those of all other machines.
        mips: of all its cores together.
        ready_s: when it begins to execute.
        ends_s: when it is terminated.
        down_s: when it fails, and when it is back, in order and apart from each other.
    """

    name: str
    mips: float
    ready_s: float = 0.0
    ends_s: float = math.inf
    down_s: tuple[tuple[float, float], ...] = ()

    def __post_init__(self) -> None:
        if not (self.mips > 0 and math.isfinite(self.mips)):
            raise ValueError(f"{self.name}: MIPS must be finite and positive, not {self.mips!r}")
        times_s = [at_s for pair in self.down_s for at_s in pair]
        if any(later < earlier for earlier, later in pairwise(times_s)):
            raise ValueError(f"{self.name}: failures must follow each other, not {self.down_s}")

    def works_s(self, from_s: float, to_s: float) -> float:
        """Return how long it executes between two times."""
        from_s, to_s = max(from_s, self.ready_s), min(to_s, self.ends_s)
        up_s = max(0.0, to_s - from_s)
        at = max(0, bisect_right(self.down_s, (from_s, math.inf)) - 1)
        while up_s > 0 and at < len(self.down_s) and self.down_s[at][0] < to_s:
            fails_s, back_s = self.down_s[at]
            up_s -= max(0.0, min(to_s, back_s) - max(from_s, fails_s))
            at += 1
        return up_s

    def up_s(self, from_s: float) -> float:
        """Return when it executes for the first time at ``from_s`` or later, unless it ends before."""
        at_s = max(from_s, self.ready_s)
        at = bisect_right(self.down_s, (at_s, math.inf)) - 1
        return max(at_s, self.down_s[at][1]) if at >= 0 else at_s

    def fails(self, from_s: float, to_s: float) -> bool:
        """Return whether it fails at ``from_s`` or later but before ``to_s``, while it executes."""
        at = bisect_left(self.down_s, (max(from_s, self.ready_s), -math.inf))
        return at < len(self.down_s) and self.down_s[at][0] < min(to_s, self.ends_s)


@dataclass(frozen=True, slots=True)
class Link:
    """From one VM to another: events arrive ``delay_s`` after their last byte was sent, one message after the other."""

    delay_s: float = 0.0
    bytes_per_s: float = math.inf

    def __post_init__(self) -> None:
        if self.delay_s < 0 or not self.bytes_per_s > 0:
            raise ValueError(f"a link's delay must not be negative, and its bandwidth must be positive, not {self}")


Placement = Mapping[str, str]
"""The VM of each vertex."""


class PlacementStrategy(Protocol):
    """Decides the VM of each vertex (CEPSim's OpPlacementStrategy)."""

    def place(self, queries: Sequence[QueryGraph], vms: Sequence[SimulatedVm]) -> Placement:
        """Return the VM of every vertex of every query."""
        ...


class SpreadQueries:
    """Places whole queries, each on the VM with the least work for its speed so far; work is counted in instructions.

    With one VM everything runs there. Equal VMs are used in order.
    """

    def place(self, queries: Sequence[QueryGraph], vms: Sequence[SimulatedVm]) -> Placement:
        """See ``PlacementStrategy``."""
        placed: dict[str, str] = {}
        load = _no_load(vms)
        for query in queries:
            work = sum(vertex.ipe for vertex in query.vertices.values())
            placed.update(dict.fromkeys(query.vertices, _least_loaded(vms, load, work)))
        return placed


class SpreadVertices:
    """Places each vertex, in topological order, by the rule of ``SpreadQueries``: one query may be on several VMs."""

    def place(self, queries: Sequence[QueryGraph], vms: Sequence[SimulatedVm]) -> Placement:
        """See ``PlacementStrategy``."""
        load = _no_load(vms)
        return {name: _least_loaded(vms, load, query.vertices[name].ipe) for query in queries for name in query.order}


def _no_load(vms: Sequence[SimulatedVm]) -> dict[str, float]:
    if not vms:
        raise ValueError("there is no VM to place queries on")
    return {vm.name: 0.0 for vm in vms}


def _least_loaded(vms: Sequence[SimulatedVm], load: dict[str, float], work: float) -> str:
    """Return the VM with the least work for its speed if it got this work, and add the work to its load."""
    chosen = min(vms, key=lambda vm: (load[vm.name] + work) / vm.mips)
    load[chosen.name] += work
    return chosen.name
