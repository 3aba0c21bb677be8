"""New keys and certificates for the gateway and all its engine hosts, without downtime.

No link is closed for it. First every host gets the next authority while the present one is still valid. Then the next
one replaces it on disk. Then the gateway connects once to each host with it, and the host drops the old one. If the
gateway is killed at any moment, the next gateway finds hosts that trust it.
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
    """The rotation is not possible now; the present certificates stay in use. The message says what to do."""


class Keeper(Protocol):
    """An object that keeps engine hosts."""

    def in_service(self) -> list[InService]:
        """Return the hosts that are connected.

        Raises:
            NotSettledError: one is about to be.
        """
        ...


class Rotation:
    """Renews the certificates of one gateway.

    Args:
        authority: the gateway's authority; it is renewed in place.
        cloud: knows the warm hosts that are not VMs.
        keepers: know all hosts that are connected.
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
            now, which refuse them after the next connection.

        Raises:
            RotationRefusedError: a host is just being launched or cannot be reached; the old certificates stay valid
            then.
        """
        async with self._one_at_a_time:
            try:
                following = await asyncio.to_thread(self._authority.following)
                hosts = await self._all_notified(following)
            except (TrustError, OSError) as error:
                raise RotationRefusedError(f"the certificates cannot be renewed: {error}") from error
            _LOG.info("certificates rotated: the gateway and %d engine hosts have new ones", len(hosts))
            later = [host for host in hosts if not await self._switched(host)]
            return {
                "renewed": [host.host for host in hosts if host not in later],
                "later": [host.host for host in later],
            }

    async def _all_notified(self, following: Authority) -> list[InService]:
        """Send the next authority to all hosts, including new ones, then put it into use."""
        told: dict[InService, None] = {}
        for _ in range(_ROUNDS):
            warm = await self._warm()
            hosts = {*await self._settled(), *warm}
            for host in sorted(hosts - told.keys(), key=lambda host: (host.name, host.host)):
                await self._renew(host, following)
                told[host] = None
            # No await from here on: no other host may come in between.
            try:
                present = {*self._in_service(), *warm}
            except NotSettledError:
                continue
            if present <= told.keys():
                self._authority.give_way(following)
                return [host for host in told if host in present]
        raise RotationRefusedError("engine hosts start and stop too often: try again later")

    def _in_service(self) -> list[InService]:
        return [host for keeper in self._keepers for host in keeper.in_service()]

    async def _renew(self, host: InService, following: Authority) -> None:
        try:
            await renew(host.address, self._authority, following, host.host, _RENEW_S)
        except (LinkLost, TrustError) as error:
            raise RotationRefusedError(f"{host.name} did not take new certificates: {error}: try again") from error

    async def _switched(self, host: InService) -> bool:
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
            raise RotationRefusedError(f"the warm host {host} is not running: restart the gateway, which launches it")

        try:
            nodes = await self._cloud.prepare(start_none)
        except CloudError as error:
            raise RotationRefusedError(f"the warm hosts cannot be listed: {error}") from error
        return [InService(node.name, node.host, (node.address, node.port)) for node in nodes]
