"""The WAN as netem of the running kernel."""

from __future__ import annotations

from typing import Final

from infra.wan.base import CLOUD_BRIDGE, HOME_BRIDGE
from infra.wan.commands import ip, run
from infra.wan.errors import WanError, WanUnavailableError
from infra.wan.settings import Direction

# The device through which a direction's packets leave the bridge.
_DEVICES: Final = {Direction.UP: "to-cloud", Direction.DOWN: "to-home"}


class NativeLine:
    """A cable between the two bridges, netem on each end."""

    def __init__(self) -> None:
        self._namespace: str | None = None

    async def start(self, namespace: str) -> None:
        """See ``Line``."""
        try:
            await run("tc", "-n", namespace, "qdisc", "replace", "dev", "lo", "root", "netem", "limit", "1")
        except WanError as error:
            raise WanUnavailableError(f"this kernel has no netem: {error}") from error
        await run("tc", "-n", namespace, "qdisc", "del", "dev", "lo", "root")
        up, down = _DEVICES[Direction.UP], _DEVICES[Direction.DOWN]
        await ip(
            namespace,
            f"link add {up} type veth peer name {down}",
            f"link set {up} master {HOME_BRIDGE} up",
            f"link set {down} master {CLOUD_BRIDGE} up",
        )
        self._namespace = namespace

    async def apply(self, direction: Direction, netem: list[str]) -> None:
        """See ``Line``."""
        if self._namespace is None:
            raise WanError("the WAN is not started")
        await run("tc", "-n", self._namespace, "qdisc", "replace", "dev", _DEVICES[direction], "root", "netem", *netem)

    async def close(self) -> None:
        """See ``Line``."""
        self._namespace = None
