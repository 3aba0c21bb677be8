"""What lies between the two sides of a WAN: one interface, whichever kernel does the work."""

from __future__ import annotations

from typing import Final, Protocol

from infra.wan.settings import Direction

HOME_BRIDGE: Final = "home"
CLOUD_BRIDGE: Final = "cloud"


class Line(Protocol):
    """Carries packets between the two bridges of a namespace, each direction as netem is told."""

    async def start(self, namespace: str) -> None:
        """Connect the bridges.

        Raises:
            WanError: it cannot.
            WanUnavailableError: this machine has not what it takes.
        """
        ...

    async def apply(self, direction: Direction, netem: list[str]) -> None:
        """Let netem have these arguments from now on; what is under way keeps its due time.

        Raises:
            WanError: netem refused them, or nobody is there.
        """
        ...

    async def close(self) -> None:
        """End what ``start`` started; the namespace's own removal takes its devices."""
        ...
