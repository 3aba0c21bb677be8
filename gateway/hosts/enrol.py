"""How the gateway gets an engine host: launch or find it, enrol it, connect to it."""

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
# A remote host is silent this long during a cut of the WAN. The host at home shares its CPUs with Spark, without a WAN
# between: it gets the link's own, longer patience.
_FAR_BEAT_S = 0.5
_FAR_SILENT_S = 2.5
_ROLE = "spillway"


class NotSettledError(Exception):
    """A host is being launched, or reconnected."""


@dataclass(frozen=True)
class InService:
    """An engine host that is connected, or ready to be.

    Attributes:
        name: of its lane.
        host: the name in its certificate.
        address: where it, or a relay in front of it, listens.
    """

    name: str
    host: str
    address: Address


def user_data(authority: Authority, host: str, token: bytes, orphan_after_s: float) -> str:
    """Return the user data of a new host."""
    return UserData(host=host, ca_pem=authority.ca_pem, token=token, orphan_after_s=orphan_after_s).to_json()


def new_host_name(prefix: str) -> str:
    """Return a name that no host had before and that is valid in a certificate."""
    return f"{prefix}-{secrets.token_hex(6)}"


class Dial(Protocol):
    """A function that connects to an engine host: ``dial``, or a test double."""

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
    """Enrol a host if there is a token for it, and connect.

    Args:
        name: of the lane.
        host: the name in the host's certificate.
        address: where it, or a relay in front of it, listens.
        authority: the gateway's authority.
        token: None for a host that was enrolled before.
        clock: time.
        within_s: the deadline for the connection.

    Raises:
        LinkLost: it cannot be reached.
        TrustError: it is not the host that was launched.
    """
    if token is not None:
        await enrol(address, authority, host, token, _ENROL_DEADLINE_S)
    beats = {} if name == HOME else {"heartbeat_s": _FAR_BEAT_S, "heartbeat_timeout_s": _FAR_SILENT_S}
    session = secrets.token_hex(8)
    link = await HostLink.connect(address, authority, host, session, clock=clock, connect_timeout_s=within_s, **beats)
    return Connection(name, link)


async def prepare_warm(cloud: Cloud, authority: Authority, clock: Clock, dial: Dial = dial) -> None:
    """Launch and enrol the warm hosts that ``cloud`` needs; do nothing if it needs none.

    Raises:
        CloudError: a host does not start.
        LinkLost: its link was lost again.
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
    for _ in range(2):  # the second time for hosts that replace unusable ones
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
        machines: a process cloud for this one host.
        authority: the gateway's authority.
        orphan_after_s: the host ends itself after this time without a gateway.
        clock: time.
        taken: ids of the hosts that this gateway uses; shared with others like this one.
        role: the purpose of the host; hosts with another role are neither used nor ended.
        dial: connects to a host.
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
        """Connect to the host of an earlier gateway if it lives and has these ``tags``, otherwise to a new one.

        Of several hosts the oldest is used: it had the queries, and the others were on standby.

        Raises:
            CloudError: it cannot be launched.
            LinkLost: its link was lost again.
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
            raise CloudError(f"the new engine host did not prove its identity: {error}") from error
        except LinkLost as error:
            raise LinkLost(await self._with_log_tail(str(error))) from error

    def in_service(self, connection: Connection | None) -> InService:
        """Return the host.

        Raises:
            NotSettledError: it is not connected now.
        """
        if self._node is None or connection is None or not connection.alive:
            raise NotSettledError("the gateway is not linked to the private engine host")
        return InService(HOME, self._node.host, (self._node.address, self._node.port))

    async def wait_ready(self, connection: Connection) -> None:
        """Return once the host that ``connect`` returned has warmed up.

        Raises:
            LinkLost: its link was lost before; the message ends with the end of its log, which is deleted with the
            host.
            TimeoutError: it took too long; likewise.
        """
        try:
            await connection.wait_ready(READY_DEADLINE_S)
        except LinkLost as error:
            raise LinkLost(await self._with_log_tail(str(error))) from error
        except TimeoutError as error:
            raise TimeoutError(await self._with_log_tail(str(error))) from error

    async def _with_log_tail(self, why: str) -> str:
        if self._node is None or not isinstance(self._machines, ReadsLogs):
            return why
        words = await self._machines.log_tail(self._node.id)
        return f"{why}; its log ends: {words or 'it wrote nothing'}"

    async def end(self, connection: Connection | None) -> None:
        """Let the host exit, if it was launched, and check that it does."""
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
        """End the standby hosts of an earlier gateway, which are not needed now."""
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
