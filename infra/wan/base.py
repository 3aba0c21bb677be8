"""The line between the two sides of a WAN: one interface for every kernel that may do the work."""

from __future__ import annotations

from typing import Final, Protocol

from infra.wan.settings import Direction

HOME_BRIDGE: Final = "home"
CLOUD_BRIDGE: Final = "cloud"


class Line(Protocol):
    """Carries packets between the two bridges of a namespace; netem shapes each direction."""

    async def start(self, namespace: str) -> None:
        """Connect the bridges.

        Raises:
            WanError: it cannot.
            WanUnavailableError: this machine lacks something that is needed.
        """
        ...

    async def apply(self, direction: Direction, netem: list[str]) -> None:
        """Replace netem's arguments; packets in transit keep their due time.

        Raises:
            WanError: netem refused them, or the line does not run.
        """
        ...

    async def close(self) -> None:
        """End what ``start`` started; the namespace's own removal takes its devices."""
        ...
