"""What a gateway asks of its fleet; one without a fleet is always the owner."""

from __future__ import annotations

from gateway.config.models import KafkaSinkConfig, QueryConfig, S3SinkConfig
from gateway.fleet.books import FleetBooks
from gateway.fleet.ownership import Ownership
from gateway.query.handover import OwningFleet


class Membership:
    """The part of a gateway in its fleet.

    Args:
        ownership: that of the fleet, not begun; None without a fleet.
    """

    def __init__(self, ownership: Ownership | None) -> None:
        self._ownership = ownership

    async def begin(self) -> None:
        """Wait until this gateway is the owner; until then it must not touch anything outside.

        Raises:
            StateError: see ``Ownership.begin``.
        """
        if self._ownership is not None:
            await self._ownership.begin()

    @property
    def holds(self) -> bool:
        """Whether this gateway is the owner now."""
        return self._ownership is None or self._ownership.holds

    def why_not_write(self) -> str:
        """Return why this gateway, which was the owner, must stop writing; empty if it need not."""
        return "" if self._ownership is None else self._ownership.failure or ""

    def vm_tag(self, without_fleet: str) -> str:
        """Return the tag of this gateway's VMs; in a fleet all gateways have the same."""
        return without_fleet if self._ownership is None else self._ownership.vm_tag

    @property
    def books(self) -> FleetBooks | None:
        """The fleet's books; None without a fleet."""
        return None if self._ownership is None else FleetBooks(self._ownership.store, self._ownership.fleet)

    def of(self, query: QueryConfig) -> OwningFleet | None:
        """Return what a query needs to be continued by another gateway of the fleet, if its sink can store that."""
        ownership = self._ownership
        if ownership is None or not isinstance(query.sink, KafkaSinkConfig | S3SinkConfig):
            return None
        return OwningFleet(lambda: ownership.epoch, ownership.agreed, ownership.fleet, ownership.store)
