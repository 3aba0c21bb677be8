"""The actuator's record of a VM."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from gateway.hosts.connection import Connection
from infra.clouds.base import Node
from infra.link.client import Address
from infra.link.shaper import ShapedRelay


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
