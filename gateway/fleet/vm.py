"""The actuator's record of a VM."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.hosts.connection import Connection
from infra.clouds.base import Node
from infra.link.client import Address
from infra.link.shaper import ShapedRelay
from policies.money.billing import NO_TRAFFIC, Traffic


@dataclass(slots=True)
class Vm:
    """A VM in the actuator; a field is set once the launch has come that far."""

    name: str
    ordered_s: float
    node: Node | None = None
    connection: Connection | None = None
    relay: ShapedRelay | None = None
    address: Address | None = None
    launched: bool = False
    given_up: bool = False
    ending: bool = False
    task: asyncio.Task[None] | None = None
    listening: asyncio.Task[None] | None = None
    draining: asyncio.Task[None] | None = None
    relinking: asyncio.Task[Connection | None] | None = None
    _earlier: Traffic = NO_TRAFFIC
    _told: Traffic = NO_TRAFFIC

    def connect(self, connection: Connection) -> None:
        """Use a connection from now on; an earlier one is closed or lost."""
        self._earlier = self._traffic
        self.connection = connection

    def traffic(self) -> Traffic:
        """Return the traffic over all its links since the last call."""
        found, self._told = self._traffic - self._told, self._traffic
        return found

    @property
    def _traffic(self) -> Traffic:
        if self.connection is None:
            return self._earlier
        stats = self.connection.link.stats
        return self._earlier + Traffic(stats.wire_sent_bytes, stats.wire_received_bytes)
