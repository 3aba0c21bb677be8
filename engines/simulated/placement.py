"""Where vertices run: VMs, the network between them, and strategies that place queries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from engines.simulated.query import QueryGraph


@dataclass(frozen=True, slots=True)
class SimulatedVm:
    """A machine that executes ``mips`` million instructions a second, from ``ready_s`` until ``ends_s``."""

    name: str
    mips: float
    ready_s: float = 0.0
    ends_s: float = math.inf

    def __post_init__(self) -> None:
        if not (self.mips > 0 and math.isfinite(self.mips)):
            raise ValueError(f"{self.name}: MIPS must be finite and positive, not {self.mips!r}")


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
        if not vms:
            raise ValueError("there is no VM to place queries on")
        load = {vm.name: 0.0 for vm in vms}
        placed: dict[str, str] = {}
        for query in queries:
            work = sum(vertex.ipe for vertex in query.vertices.values())
            chosen = min(vms, key=lambda vm: (load[vm.name] + work) / vm.mips)
            load[chosen.name] += work
            placed.update(dict.fromkeys(query.vertices, chosen.name))
        return placed
