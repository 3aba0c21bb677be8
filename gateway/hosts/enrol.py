"""How the gateway gets to an engine host: start or find it, enrol it, link up."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from gateway.hosts.connection import Connection
from infra.clock import Clock
from infra.clouds.base import Cloud, CloudError, Node, ReadsLogs, Warms
from infra.link.channel import LinkLost
from infra.link.client import Address, HostLink, enrol
from infra.link.keys.trust import Authority, TrustError, UserData, new_token
from infra.messages import Shutdown
from policies.signals import HOME

_LOG = logging.getLogger(__name__)
_ENROL_DEADLINE_S = 15.0
READY_DEADLINE_S = 180.0
_WARM_ORPHAN_S = 900.0
DIAL_S = 10.0
# A host elsewhere is silent for so long when the WAN is cut. The one at home shares its CPUs with Spark, and no WAN is
# between: it gets the link's own, longer patience.
_FAR_BEAT_S = 0.5
_FAR_SILENT_S = 2.5
_ROLE = "spillway"


class NotSettledError(Exception):
    """A host is being started, or linked up with again."""


@dataclass(frozen=True)
class InService:
    """An engine host that is linked up with, or ready to be.

    Attributes:
        name: of its lane.
        host: the name in its certificate.
        address: where it listens, or a relay before it.
    """

    name: str
    host: str
    address: Address


def user_data(authority: Authority, host: str, token: bytes, orphan_after_s: float) -> str:
    """Return the user data of a new host."""
    return UserData(host=host, ca_pem=authority.ca_pem, token=token, orphan_after_s=orphan_after_s).to_json()


def new_host_name(prefix: str) -> str:
    """Return a name that no host had before, good for a certificate."""
    return f"{prefix}-{secrets.token_hex(6)}"


class Dial(Protocol):
    """What links up with an engine host: ``dial``, or a double of a test."""

    async def __call__(
        self,
        name: str,
        host: str,
        address: Address,
        authority: Authority,
        token: bytes | None,
        clock: Clock,
        within_s: float = ...,
    ) -> Connection:
        """See ``dial``."""


async def dial(
    name: str,
    host: str,
    address: Address,
    authority: Authority,
    token: bytes | None,
    clock: Clock,
    within_s: float = DIAL_S,
) -> Connection:
    """Enrol a host if it has a token to spend, and link up.

    Args:
        name: of the lane.
        host: the name in the host's certificate.
        address: where it listens, or a relay before it.
        authority: the gateway's.
        token: None for a host that was enrolled before.
        clock: time.
        within_s: for linking up.

    Raises:
        LinkLost: it cannot be reached.
        TrustError: it is not the host that was started.
    """
    if token is not None:
        await enrol(address, authority, host, token, _ENROL_DEADLINE_S)
    beats = {} if name == HOME else {"heartbeat_s": _FAR_BEAT_S, "heartbeat_timeout_s": _FAR_SILENT_S}
    session = secrets.token_hex(8)
    link = await HostLink.connect(address, authority, host, session, clock=clock, connect_timeout_s=within_s, **beats)
    return Connection(name, link)


async def prepare_warm(cloud: Cloud, authority: Authority, clock: Clock, dial: Dial = dial) -> None:
    """Start and enrol the warm hosts that ``cloud`` wants; nothing when it wants none, or knows none.

    Raises:
        CloudError: a host does not come up.
        LinkLost: it went away again.
        TrustError: it did not prove itself.
        TimeoutError: it did not become ready.
    """
    if not isinstance(cloud, Warms):
        return
    tokens: dict[str, bytes] = {}

    def data_for(host: str) -> str:
        tokens[host] = new_token()
        return user_data(authority, host, tokens[host], _WARM_ORPHAN_S)

    usable: set[str] = set()
    for _ in range(2):  # the second time for those in the place of hosts that cannot be used
        for node in await cloud.prepare(data_for):
            if node.host in usable:
                continue
            try:
                await _see_ready(node, authority, tokens.get(node.host), clock, dial)
            except (LinkLost, TrustError, TimeoutError) as error:
                if node.host in tokens:
                    raise
                _LOG.warning("a warm host of an earlier gateway cannot be used: %s", error)
                await cloud.destroy(node.id)
            else:
                usable.add(node.host)


async def _see_ready(node: Node, authority: Authority, token: bytes | None, clock: Clock, dial: Dial) -> None:
    connection = await dial(node.name, node.host, (node.address, node.port), authority, token, clock)
    try:
        await connection.wait_ready(READY_DEADLINE_S)
    finally:
        await connection.close("warm")


class HomeHost:
    """The private engine host: a process on this machine that outlives the gateway.

    Args:
        machines: a process cloud that holds this one host.
        authority: the gateway's.
        orphan_after_s: the host ends itself after so long without a gateway.
        clock: time.
        taken: ids of the hosts that this gateway has; others like this one share it.
        role: what the host is for; one with another role is neither taken nor ended.
        dial: links up with a host.
    """

    def __init__(
        self,
        machines: Cloud,
        authority: Authority,
        orphan_after_s: float,
        clock: Clock,
        taken: set[str],
        role: str = HOME,
        dial: Dial = dial,
    ) -> None:
        self._dial = dial
        self._taken = taken
        self._role = {_ROLE: role}
        self._machines = machines
        self._authority = authority
        self._orphan_after_s = orphan_after_s
        self._clock = clock
        self._node: Node | None = None

    async def connect(self, tags: Mapping[str, str]) -> Connection:
        """Link up with the host of an earlier gateway if it lives and is what ``tags`` say, else with a new one.

        Of several the oldest is taken: it had the queries, and the others stood by.

        Raises:
            CloudError: it cannot be started.
            LinkLost: it went away again.
        """
        wanted = {**self._role, **tags}
        self._forget()
        for node in await self._machines.list(self._role):
            if node.id in self._taken:
                continue
            if node.state == "running" and dict(node.tags) == wanted:
                try:
                    connection = await self._dial(
                        HOME, node.host, (node.address, node.port), self._authority, None, self._clock
                    )
                except (LinkLost, TrustError) as error:
                    _LOG.warning("the engine host of an earlier gateway cannot be used: %s", error)
                else:
                    self._hold(node)
                    return connection
            await self._machines.destroy(node.id)
        token = new_token()
        text = user_data(self._authority, new_host_name(HOME), token, self._orphan_after_s)
        node = await self._machines.create(HOME, wanted, text)
        self._hold(node)
        try:
            return await self._dial(HOME, node.host, (node.address, node.port), self._authority, token, self._clock)
        except TrustError as error:
            raise CloudError(f"the new engine host did not prove itself: {error}") from error
        except LinkLost as error:
            raise LinkLost(await self._with_last_words(str(error))) from error

    def in_service(self, connection: Connection | None) -> InService:
        """Return the host.

        Raises:
            NotSettledError: it is not linked up with now.
        """
        if self._node is None or connection is None or not connection.alive:
            raise NotSettledError("the private engine host is not linked up with")
        return InService(HOME, self._node.host, (self._node.address, self._node.port))

    async def wait_ready(self, connection: Connection) -> None:
        """Return once the host that ``connect`` returned has warmed up.

        Raises:
            LinkLost: it went away before; the message ends with the end of its log, which is gone with it.
            TimeoutError: it took too long; likewise.
        """
        try:
            await connection.wait_ready(READY_DEADLINE_S)
        except LinkLost as error:
            raise LinkLost(await self._with_last_words(str(error))) from error
        except TimeoutError as error:
            raise TimeoutError(await self._with_last_words(str(error))) from error

    async def _with_last_words(self, why: str) -> str:
        if self._node is None or not isinstance(self._machines, ReadsLogs):
            return why
        words = await self._machines.log_tail(self._node.id)
        return f"{why}; its last words: {words or 'it wrote nothing'}"

    async def end(self, connection: Connection | None) -> None:
        """Let the host end itself, if it was started, and see that it does."""
        if connection is not None:
            try:
                await connection.link.send(Shutdown())
            except LinkLost as error:
                _LOG.debug("the engine host has already exited: %s", error)
            await connection.close("the gateway stops")
        if self._node is not None:
            await self._machines.destroy(self._node.id)
            self._forget()

    async def end_others(self) -> None:
        """End the hosts of an earlier gateway that stood by, as nobody wants them now."""
        for node in await self._machines.list(self._role):
            if node.id not in self._taken:
                await self._machines.destroy(node.id)

    def _hold(self, node: Node) -> None:
        self._node = node
        self._taken.add(node.id)

    def _forget(self) -> None:
        if self._node is not None:
            self._taken.discard(self._node.id)
            self._node = None
