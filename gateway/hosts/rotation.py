"""New keys and certificates for the gateway and all its engine hosts, while they work.

No link ends for it. Every host is told of the next authority while the present one is still good; then the next one
takes its place on disk; then each host is met once by it, and forgets the one before. Killed at any moment, the next
gateway finds hosts that trust it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final, NoReturn, Protocol

from gateway.hosts.enrol import InService, NotSettledError
from infra.clock import Clock
from infra.clouds.base import Cloud, CloudError, Warms
from infra.link.channel import LinkLost
from infra.link.client import renew
from infra.link.keys.trust import Authority, TrustError

_LOG = logging.getLogger(__name__)
_RENEW_S: Final = 15.0
_SETTLE_S: Final = 60.0
_POLL_S: Final = 0.2
_ROUNDS: Final = 5


class RotationRefusedError(Exception):
    """Not now; everything goes on with the certificates that there are. The message says what to do."""


class Keeper(Protocol):
    """Who has engine hosts in its care."""

    def in_service(self) -> list[InService]:
        """Return those that are linked up with.

        Raises:
            NotSettledError: one is about to be.
        """
        ...


class Rotation:
    """Renews the certificates of one gateway.

    Args:
        authority: the gateway's; it is renewed in place.
        cloud: knows warm hosts that no VM is.
        keepers: know all hosts that are linked up with.
        clock: time.
    """

    def __init__(self, authority: Authority, cloud: Cloud, keepers: Collection[Keeper], clock: Clock) -> None:
        self._authority = authority
        self._cloud = cloud
        self._keepers = keepers
        self._clock = clock
        self._one_at_a_time = asyncio.Lock()

    async def rotate(self) -> dict[str, list[str]]:
        """Renew all certificates.

        Returns:
            ``renewed``: hosts that refuse the old ones from now on; ``later``: those that could not be reached just
            now, and do so when they are linked up with again.

        Raises:
            RotationRefusedError: a host is just being started or cannot be reached; nothing is refused then.
        """
        async with self._one_at_a_time:
            try:
                following = await asyncio.to_thread(self._authority.following)
                hosts = await self._all_told(following)
            except (TrustError, OSError) as error:
                raise RotationRefusedError(f"the certificates cannot be renewed: {error}") from error
            _LOG.info("certificates rotated: the gateway and %d engine hosts have new ones", len(hosts))
            later = [host for host in hosts if not await self._met(host)]
            return {
                "renewed": [host.host for host in hosts if host not in later],
                "later": [host.host for host in later],
            }

    async def _all_told(self, following: Authority) -> list[InService]:
        """Tell all hosts of the next authority, those too that come meanwhile, then let it take over."""
        told: dict[InService, None] = {}
        for _ in range(_ROUNDS):
            warm = await self._warm()
            hosts = {*await self._settled(), *warm}
            for host in sorted(hosts - told.keys(), key=lambda host: (host.name, host.host)):
                await self._tell(host, following)
                told[host] = None
            # No await from here on: nobody may come between.
            try:
                present = {*self._in_service(), *warm}
            except NotSettledError:
                continue
            if present <= told.keys():
                self._authority.give_way(following)
                return [host for host in told if host in present]
        raise RotationRefusedError("engine hosts come and go too fast: try again when it is calmer")

    def _in_service(self) -> list[InService]:
        return [host for keeper in self._keepers for host in keeper.in_service()]

    async def _tell(self, host: InService, following: Authority) -> None:
        try:
            await renew(host.address, self._authority, following, host.host, _RENEW_S)
        except (LinkLost, TrustError) as error:
            raise RotationRefusedError(f"{host.name} did not take new certificates: {error}: try again") from error

    async def _met(self, host: InService) -> bool:
        try:
            await renew(host.address, self._authority, self._authority, host.host, _RENEW_S)
        except (LinkLost, TrustError) as error:
            _LOG.warning("%s accepts the old certificates until the gateway reconnects to it: %s", host.name, error)
            return False
        return True

    async def _settled(self) -> Collection[InService]:
        deadline_s = self._clock.now() + _SETTLE_S
        while True:
            try:
                return self._in_service()
            except NotSettledError as error:
                if self._clock.now() > deadline_s:
                    raise RotationRefusedError(f"{error}: try again once it is") from error
            await self._clock.sleep_until(self._clock.now() + _POLL_S)

    async def _warm(self) -> list[InService]:
        if not isinstance(self._cloud, Warms):
            return []

        def start_none(host: str) -> NoReturn:
            raise RotationRefusedError(
                f"the warm host {host} has to be started: it is at the next start of the gateway"
            )

        try:
            nodes = await self._cloud.prepare(start_none)
        except CloudError as error:
            raise RotationRefusedError(f"the warm hosts cannot be looked at: {error}") from error
        return [InService(node.name, node.host, (node.address, node.port)) for node in nodes]
