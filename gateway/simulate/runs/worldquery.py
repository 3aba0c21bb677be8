"""What a simulated world asks of each of its queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from gateway.query.flow.statistics import Tally
from gateway.simulate.options import QueryOptions
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from policies.switching.shedding import Sampler


class WorldQuery(Protocol):
    """A query of a simulated world.

    Attributes:
        options: the query and its load.
        name: its name.
        tally: its totals.
    """

    options: QueryOptions
    name: str
    tally: Tally

    @property
    def sampler(self) -> Sampler:
        """Decides which part of the events is shed."""
        ...

    def arrive(self, to_s: float) -> float:
        """Read the arrivals since the last call; return when to look again."""
        ...

    def finish(self, to_s: float) -> None:
        """Note that no event comes after this time."""
        ...

    def set_shares(self, shares: Mapping[str, float]) -> None:
        """Use these shares from now on."""
        ...

    def add_lane(self, host: SimulatedEngineHost) -> None:
        """Use a host from now on, if shares name it."""
        ...

    def remove_lane(self, name: str, reason: str) -> None:
        """Note that a host is gone: it was lost, or ended without a ``reason``."""
        ...

    def drain_lane(self, name: str) -> None:
        """Send nothing more to a host."""
        ...

    def uses(self, lane: str) -> bool:
        """Return whether a lane may not be given up yet, because something of this query is there."""
        ...

    def end_slot(self) -> None:
        """Do what the daemon does for a query before a slot ends."""
        ...

    @property
    def idle(self) -> bool:
        """Whether everything that arrived is committed."""
        ...

    def check(self) -> None:
        """Check that every event is accounted for."""
        ...

    def check_all(self, *, thorough: bool = False) -> None:
        """Check the invariants of its state; with ``thorough`` all of them."""
        ...

    def check_slot(self) -> None:
        """Check, at the end of a slot, the invariants between events."""
        ...

    def check_end(self) -> None:
        """Check that every event was released, or stored, exactly once."""
        ...
