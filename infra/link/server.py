"""The host's end of a link: it listens, enrols once, and serves the newest session of its gateway."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial

from infra.clock import Clock
from infra.link.channel import STREAM_LIMIT_BYTES, Channel, LinkLost, pong_for
from infra.link.frames import Buffer, FrameError
from infra.link.keys.identity import HostIdentity
from infra.link.keys.trust import NONCE_BYTES, TrustError, UserData, enrol_mac
from infra.link.pair import ChannelPair
from infra.messages import (
    AnyMessage,
    EnrolGrant,
    Enrolled,
    EnrolProof,
    EnrolRequest,
    GatewayHello,
    HostHello,
    HostReady,
    Ping,
    Reclaimed,
    Renewed,
    RenewGrant,
    RenewProof,
    RenewRequest,
)
from infra.runtime import Runtime
from infra.together import end_tasks

__all__ = ["HostServer", "LinkLost", "SessionEnded", "SessionStarted"]

MAX_CONNECTIONS = 8
MAX_STRANGERS = 256
"""Limit of connections without a certificate. A handshake over a WAN takes 0.2 s: this many may arrive meanwhile."""
GREETING_S = 10.0
_CLOSE_S = 1.0
_SILENT_CHECKS = 8


@dataclass(frozen=True)
class SessionStarted:
    """A gateway is connected with both channels; an earlier session's queries do not belong to it."""

    session: str


@dataclass(frozen=True)
class SessionEnded:
    """The gateway has disconnected or was replaced; nothing can be sent to this session any more."""

    session: str
    reason: str


class _RefusedError(Exception):
    """The reason why a connection is refused; it is sent in the ``Bye``."""


@dataclass(frozen=True)
class _Served:
    """A session with both its connections; ``order`` counts control greetings, so the highest is the newest."""

    order: int
    name: str
    pair: ChannelPair


@dataclass(frozen=True)
class _Greeted:
    """A control connection that waits for its data connection."""

    order: int
    channel: Channel
    paired: asyncio.Future[ChannelPair]


class HostServer:
    """Accepts the gateway's connections.

    Args:
        identity: this host's key and certificate.
        user_data: its name, token, and where to listen.
        runtime: what the hello says this host runs.
        clock: measures when a gateway was last connected.
        heartbeat_timeout_s: the session of a gateway that is silent for this long ends.

    Attributes:
        identity: this host's key and certificate.
        ready: whether the warm-up batch is done.
        tables: the fingerprints of the versions of static tables that this host has.
    """

    def __init__(
        self,
        identity: HostIdentity,
        user_data: UserData,
        runtime: Runtime,
        *,
        clock: Clock,
        heartbeat_timeout_s: float = 8.0,
    ) -> None:
        self.ready = False
        self.tables: set[str] = set()
        self.identity = identity
        self._user_data = user_data
        self._runtime = runtime
        self._clock = clock
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._listener: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._connections = 0
        # Connections whose other end has not presented a certificate yet, oldest first.
        self._unproven: dict[asyncio.Task[None], None] = {}
        self._greetings = itertools.count()
        self._greeted: dict[str, _Greeted] = {}
        self._current: _Served | None = None
        self._unannounced: _Served | None = None
        self._announced: _Served | None = None
        self._new_session = asyncio.Event()
        self._last_gateway_s = clock.now()
        self._reclaimed_s: float | None = None
        self._closed = False

    async def start(self) -> tuple[str, int]:
        """Listen where the user data says, and return the address that was bound.

        Raises:
            OSError: the address cannot be bound.
        """
        host, port = self._user_data.listen_host, self._user_data.listen_port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=MAX_STRANGERS)
        self._listener.setblocking(False)
        self._run(self._accept(self._listener))
        bound = self._listener.getsockname()
        return bound[0], bound[1]

    @property
    def last_gateway_s(self) -> float:
        """The time when a gateway was last connected: now, if one is; the start of the server, if none was yet."""
        if self._current is not None and self._current.pair.lost is None:
            self._last_gateway_s = self._clock.now()
        return self._last_gateway_s

    @property
    def connection_count(self) -> int:
        """How many connections are open, those of strangers included."""
        return self._connections

    @property
    def stranger_count(self) -> int:
        """How many of them have not yet shown a certificate."""
        return len(self._unproven)

    @property
    def pair(self) -> ChannelPair | None:
        """Both connections of the newest session, which may be lost; None before the first."""
        return None if self._current is None else self._current.pair

    async def mark_ready(self, boot_s: float) -> None:
        """Note that the warm-up batch is done, and notify the connected gateway."""
        self.ready = True
        await self.notify(HostReady(boot_s=boot_s))

    async def mark_reclaimed(self, in_s: float) -> None:
        """Note that the provider reclaims this machine, and when. Gateways that connect later are notified too."""
        self._reclaimed_s = self._clock.now() + in_s
        await self.notify(Reclaimed(in_s=in_s))

    async def notify(self, message: AnyMessage) -> None:
        """Send a message to the present session, if there is one."""
        if self._current is not None:
            await self.send(self._current.name, message)

    async def receive(self) -> tuple[str, AnyMessage | SessionStarted | SessionEnded, bytes]:
        """Return the next message and the session it belongs to; each session begins and ends with an event.

        Safe to cancel. A session that was replaced before this method returned its start is left out.

        Raises:
            LinkLost: the server was closed.
        """
        while self._announced is None:
            if self._unannounced is not None:
                self._announced, self._unannounced = self._unannounced, None
                return self._announced.name, SessionStarted(self._announced.name), b""
            if self._closed:
                raise LinkLost("the server is closed")
            self._new_session.clear()
            await self._new_session.wait()
        served = self._announced
        try:
            message, payload = await served.pair.receive()
        except LinkLost as error:
            self._announced = None
            return served.name, SessionEnded(served.name, error.reason), b""
        return served.name, message, payload

    async def send(self, session: str, message: AnyMessage, payload: Buffer = b"") -> bool:
        """Send to a session; return False if that session is gone.

        Raises:
            ValueError: too large, or a payload with a message that carries none.
        """
        if self._current is None or self._current.name != session:
            return False
        try:
            await self._current.pair.send(message, payload)
        except LinkLost:
            return False
        return True

    async def close(self, reason: str) -> None:
        """Say goodbye to the gateway, stop listening, and end every connection."""
        self._closed = True
        if self._current is not None:
            self._current.pair.lose(reason)
            await self._current.pair.wait_closed()
        await end_tasks(*self._tasks)
        if self._listener is not None:
            self._listener.close()
        self._new_session.set()

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            connection, _ = await loop.sock_accept(listener)
            if len(self._unproven) >= MAX_STRANGERS:
                await self._make_room()
            self._connections += 1
            served = self._run(self._serve(connection))
            self._unproven[served] = None
            served.add_done_callback(partial(self._left, connection=connection))

    async def _make_room(self) -> None:
        """Close the connection that has been silent for longest, so that silent strangers lock nobody out."""
        oldest = next(iter(self._unproven))
        await end_tasks(oldest)

    def _left(self, served: asyncio.Task[None], connection: socket.socket) -> None:
        self._connections -= 1
        if served in self._unproven:
            del self._unproven[served]
            connection.close()

    async def _serve(self, connection: socket.socket) -> None:
        try:
            async with asyncio.timeout(GREETING_S):
                channel = await self._secure(connection)
        except (OSError, TimeoutError):  # TLS has sent the other end its alert already
            return
        if (this := asyncio.current_task()) is not None:
            self._unproven.pop(this, None)
        self.identity.met(channel.peer_certificate_der())
        try:
            await self._converse(channel)
        except (LinkLost, FrameError, TrustError, _RefusedError) as error:
            await channel.close(str(error))
        except TimeoutError:
            await channel.close(f"no greeting within {GREETING_S:g} s")
        finally:
            channel.abort()

    async def _secure(self, connection: socket.socket) -> Channel:
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(limit=STREAM_LIMIT_BYTES, loop=loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        transport, _ = await loop.connect_accepted_socket(
            lambda: protocol, connection, ssl=self.identity.context, ssl_shutdown_timeout=_CLOSE_S
        )
        return Channel(reader, asyncio.StreamWriter(transport, protocol, reader, loop), "data")

    async def _converse(self, channel: Channel) -> None:
        if self._connections - len(self._unproven) > MAX_CONNECTIONS:
            raise _RefusedError(f"{MAX_CONNECTIONS} connections are open")
        async with asyncio.timeout(GREETING_S):
            first = (await channel.receive()).message
            if isinstance(first, EnrolRequest):
                await self._enrol(channel, first)
                return
            if isinstance(first, RenewRequest):
                await self._renew(channel, first)
                return
        if not isinstance(first, GatewayHello):
            raise _RefusedError(f"{type(first).__name__} instead of a greeting")
        if first.channel == "control":
            pair = await self._greet_control(channel, first.session)
        else:
            pair = self._greet_data(channel, first.session)
        await pair.wait_closed()

    async def _enrol(self, channel: Channel, request: EnrolRequest) -> None:
        certificate_der = self.identity.certificate_der
        self._refuse_if_enrolled()
        if len(request.nonce) != NONCE_BYTES:
            raise _RefusedError(f"a nonce of {len(request.nonce)} bytes")
        mac = enrol_mac(self._user_data.token, certificate_der, request.nonce)
        await channel.send(EnrolProof(mac=mac, csr_pem=self.identity.csr()))
        grant = (await channel.receive()).message
        if not isinstance(grant, EnrolGrant):
            raise _RefusedError(f"{type(grant).__name__} instead of the grant")
        self._refuse_if_enrolled()
        self.identity.install(grant.certificate_pem)
        await channel.send(Enrolled())
        await channel.close("enrolled")

    async def _renew(self, channel: Channel, request: RenewRequest) -> None:
        if not self.identity.enrolled:
            raise _RefusedError(f"{self._user_data.host} is not enrolled: there is nothing to renew")
        renewal = self.identity.renewal(request.ca_pem)
        await channel.send(RenewProof(csr_pem=renewal.csr_pem))
        grant = (await channel.receive()).message
        if not isinstance(grant, RenewGrant):
            raise _RefusedError(f"{type(grant).__name__} instead of the grant")
        self.identity.renew(renewal, grant.certificate_pem)
        await channel.send(Renewed())
        await channel.close("renewed")

    def _refuse_if_enrolled(self) -> None:
        if self.identity.enrolled:
            raise _RefusedError(f"{self._user_data.host} is enrolled: its token is spent")

    async def _greet_control(self, channel: Channel, session: str) -> ChannelPair:
        if session in self._greeted:
            raise _RefusedError(f"session {session} is greeting already")
        channel.narrow_to_control()
        paired: asyncio.Future[ChannelPair] = asyncio.get_running_loop().create_future()
        self._greeted[session] = _Greeted(next(self._greetings), channel, paired)
        try:
            channel.try_send(self._hello(session))
            await asyncio.wait([paired], timeout=GREETING_S)
        finally:
            self._greeted.pop(session, None)
        if not paired.done():
            raise _RefusedError(f"no data connection of session {session} within {GREETING_S:g} s")
        return paired.result()

    def _greet_data(self, channel: Channel, session: str) -> ChannelPair:
        greeted = self._greeted.pop(session, None)
        if greeted is None:
            raise _RefusedError(f"no control connection of session {session} was greeted")
        if self._current is not None and self._current.order > greeted.order:
            refusal = _RefusedError(f"session {self._current.name} is newer than {session}")
            greeted.paired.set_exception(refusal)
            raise refusal
        pair = ChannelPair(
            greeted.channel, channel, lambda message: _answer_ping(greeted.channel, message), keep_data=False
        )
        pair.run(self._watch(pair))
        greeted.paired.set_result(pair)
        channel.try_send(self._hello(session))
        self._begin(greeted.order, session, pair)
        return pair

    def _hello(self, session: str) -> HostHello:
        reclaimed_in_s = None if self._reclaimed_s is None else max(0.0, self._reclaimed_s - self._clock.now())
        return HostHello(
            host=self._user_data.host,
            session=session,
            runtime=self._runtime,
            ready=self.ready,
            reclaimed_in_s=reclaimed_in_s,
            tables=tuple(sorted(self.tables)),
        )

    def _begin(self, order: int, session: str, pair: ChannelPair) -> None:
        if self._current is not None:
            self._current.pair.lose(f"replaced by session {session}")
        self._current = self._unannounced = _Served(order, session, pair)
        self._new_session.set()

    async def _watch(self, pair: ChannelPair) -> None:
        silent_checks = 0  # counted, not timed: a host that was suspended must not blame the gateway
        while silent_checks < _SILENT_CHECKS:
            self._last_gateway_s = self._clock.now()
            await self._clock.sleep_until(self._last_gateway_s + self._heartbeat_timeout_s / _SILENT_CHECKS)
            silent_checks = 0 if pair.has_received() else silent_checks + 1
        raise LinkLost(f"no heartbeat from the gateway for {self._heartbeat_timeout_s:g} s")

    def _run(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _answer_ping(control: Channel, message: AnyMessage) -> bool:
    if isinstance(message, Ping):
        control.try_send(pong_for(message))
        return True
    return False
