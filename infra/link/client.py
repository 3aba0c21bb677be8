"""The gateway's end of a link. The gateway connects to the host, so home opens no port."""

from __future__ import annotations

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from cryptography import x509

from infra import messages
from infra.clock import Clock
from infra.link.channel import STREAM_LIMIT_BYTES, Channel, Goodbye, LinkLost, pong_for
from infra.link.frames import Buffer, FrameError
from infra.link.keys.certificates import requested_key, same_key
from infra.link.keys.trust import NONCE_BYTES, Authority, TrustError, enrol_mac, same_mac
from infra.link.pair import ChannelPair
from infra.link.tcp import TcpMeter
from infra.messages import (
    PROTOCOL,
    AnyMessage,
    EnrolGrant,
    Enrolled,
    EnrolProof,
    EnrolRequest,
    GatewayHello,
    HostHello,
    Ping,
    Pong,
    Renewed,
    RenewGrant,
    RenewProof,
    RenewRequest,
)

__all__ = ["Address", "HostLink", "LinkLost", "LinkStats", "enrol", "renew"]

Address = tuple[str, int]

_CLOSE_S = 1.0
_MAX_PINGS = 64
_RTT_WEIGHT = 1 / 8  # RFC 6298, section 2
# A host counts as silent only after this many round trips: on a full line, round trips are long and answers late.
_SILENT_ROUND_TRIPS = 8.0


@dataclass
class LinkStats:
    """Counters and measurements of a link.

    Attributes:
        rtt_s: smoothed round trip of heartbeats; None before the first.
        sent_bytes: frames sent on both connections, with headers and payloads, without TLS.
        received_bytes: likewise received.
        wire_sent_bytes: with TLS and retransmissions, where this kernel counts them.
        wire_received_bytes: with TLS.
        load1: the host's one-minute load average.
        cpu: use of the CPUs that the host may use, in [0, 1]; None while it has not reported it.
        rss_bytes: memory of the host's process.
        goodput_bytes_per_s: bytes that the host acknowledged on the data connection during the last heartbeats; None if
            this kernel does not report it.
        loss: the part of that connection's segments that were retransmitted; None likewise, or when none was sent.
    """

    rtt_s: float | None = None
    sent_bytes: int = 0
    received_bytes: int = 0
    wire_sent_bytes: int = 0
    wire_received_bytes: int = 0
    load1: float = 0.0
    cpu: float | None = None
    rss_bytes: int = 0
    goodput_bytes_per_s: float | None = None
    loss: float | None = None


async def enrol(address: Address, authority: Authority, host_name: str, token: bytes, deadline_s: float) -> None:
    """Let a new host prove itself with its token, and sign its key; then ``HostLink.connect`` works.

    Nothing happens if the host presents a certificate of this authority: it was enrolled before.

    Args:
        address: where it listens.
        authority: signs its key.
        host_name: the name its certificate will carry.
        token: the one in its user data.
        deadline_s: seconds for all of it.

    Raises:
        TrustError: it holds another token, its token is spent, or it refused this gateway.
        LinkLost: it cannot be reached, or did not answer in time; a retry may help.
    """
    try:
        async with _opened(address, authority.enrol_context(), host_name, "control", deadline_s) as channel:
            certificate_der = channel.peer_certificate_der()
            if not authority.has_issued(certificate_der, host_name):
                await _have_it_prove_itself(channel, authority, host_name, token, certificate_der)
            await channel.close("enrolled")
    except Goodbye as refusal:
        raise TrustError(f"{host_name} refused to enrol: {refusal.reason}") from refusal


async def renew(
    address: Address, authority: Authority, following: Authority, host_name: str, deadline_s: float
) -> None:
    """Give an enrolled host a new key, signed by another authority, over a separate connection; its link stays open.

    The host trusts both authorities until a gateway proves itself with a certificate of ``following``.

    Args:
        address: where it listens.
        authority: the one that the host trusts.
        following: signs its new key; may be the same.
        host_name: the name in its certificate.
        deadline_s: seconds for all of it.

    Raises:
        TrustError: it refused this gateway, or sent an invalid request.
        LinkLost: it cannot be reached, or did not answer in time; a retry may help.
    """
    try:
        async with _opened(address, authority.client_context(), host_name, "control", deadline_s) as channel:
            await channel.send(RenewRequest(ca_pem=following.ca_pem.encode()))
            proof = (await channel.receive()).message
            if not isinstance(proof, RenewProof):
                raise FrameError(f"{type(proof).__name__} instead of the request to sign a new key")
            await channel.send(RenewGrant(certificate_pem=following.sign(proof.csr_pem, host_name)))
            done = (await channel.receive()).message
            if not isinstance(done, Renewed):
                raise FrameError(f"{type(done).__name__} instead of the end of a renewal")
            await channel.close("renewed")
    except Goodbye as refusal:
        raise TrustError(f"{host_name} refused new certificates: {refusal.reason}") from refusal


class HostLink:
    """A link to one host. It is not reused: after a loss, open a new one.

    Use ``connect``.

    Attributes:
        hello: the host's greeting.
    """

    def __init__(
        self,
        control: Channel,
        data: Channel,
        hello: HostHello,
        clock: Clock,
        heartbeat_s: float,
        heartbeat_timeout_s: float,
    ) -> None:
        self.hello = hello
        self._clock = clock
        self._heartbeat_s = heartbeat_s
        self._heartbeat_timeout_s = heartbeat_timeout_s
        self._meter = TcpMeter()
        self._pings: set[float] = set()
        self._stats = LinkStats()
        self._pair = ChannelPair(control, data, self._on_heartbeat, keep_data=True)
        self._pair.run(self._beat())

    def __repr__(self) -> str:
        return f"HostLink({self.hello.host}, session {self.hello.session}, {self._pair.lost or 'open'})"

    @classmethod
    async def connect(
        cls,
        address: Address,
        authority: Authority,
        host_name: str,
        session: str,
        *,
        clock: Clock,
        heartbeat_s: float = 1.0,
        heartbeat_timeout_s: float = 8.0,
        connect_timeout_s: float = 10.0,
    ) -> HostLink:
        """Open both connections and greet the host.

        Args:
            address: where the host, or a relay in front of it, listens.
            authority: the gateway's identity, and the authority that signed the host.
            host_name: must be in the host's certificate.
            session: a name of this link that was never used before; the host serves the newest session.
            clock: measures round trips and times heartbeats.
            heartbeat_s: between two heartbeats.
            heartbeat_timeout_s: a host that is silent for this long, and for at least eight round trips, is lost.
            connect_timeout_s: for both connections, with greetings.

        Raises:
            TrustError: the host is not the one named, or refused this gateway's certificate.
            LinkLost: it cannot be reached, did not answer in time, or said goodbye.
        """
        context = authority.client_context()
        async with (
            _opened(address, context, host_name, "control", connect_timeout_s) as control,
            _opened(address, context, host_name, "data", connect_timeout_s) as data,
        ):
            await _greet(control, host_name, session, "control")
            # Use the later of the two hellos: a host that becomes ready between them says so only in the second.
            hello = await _greet(data, host_name, session, "data")
        return cls(control, data, hello, clock, heartbeat_s, heartbeat_timeout_s)

    @property
    def pair(self) -> ChannelPair:
        """Both connections."""
        return self._pair

    @property
    def lost(self) -> str | None:
        """Why the link is lost; None while it lives."""
        return self._pair.lost

    @property
    def stats(self) -> LinkStats:
        """Return counters and measurements as of now."""
        channels = (self._pair.control, self._pair.data)
        self._stats.sent_bytes = sum(channel.sent_bytes for channel in channels)
        self._stats.received_bytes = sum(channel.received_bytes for channel in channels)
        wires = [channel.count_wire_bytes() for channel in channels]
        self._stats.wire_sent_bytes = sum(sent_bytes for sent_bytes, _ in wires)
        self._stats.wire_received_bytes = sum(received_bytes for _, received_bytes in wires)
        self._stats.goodput_bytes_per_s = self._meter.goodput_bytes_per_s
        self._stats.loss = self._meter.loss
        return self._stats

    async def send(self, message: AnyMessage, payload: Buffer = b"") -> None:
        """Send a message on the connection where it belongs, and wait until that connection's buffers have room again.

        Raises:
            LinkLost: the link is gone; the message may or may not have arrived.
            ValueError: too large, or a payload with a message that carries none.
        """
        await self._pair.send(message, payload)

    async def receive(self) -> tuple[AnyMessage, bytes]:
        """Return the next message of either connection, control first. Safe to cancel.

        Raises:
            LinkLost: the link is lost, and everything that had arrived before was returned.
        """
        return await self._pair.receive()

    def lose(self, reason: str) -> None:
        """End the link without waiting; ``receive`` then raises ``LinkLost`` with this reason."""
        self._pair.lose(reason)

    async def close(self, reason: str) -> None:
        """Send the host the reason and close both connections; harmless when the link is lost already."""
        self._pair.lose(reason)
        await self._pair.wait_closed()

    def _on_heartbeat(self, message: AnyMessage) -> bool:
        if isinstance(message, Ping):
            self._pair.control.try_send(pong_for(message))
            return True
        if isinstance(message, Pong):
            self._measure(message)
            return True
        return False

    def _measure(self, pong: Pong) -> None:
        if pong.sent_s not in self._pings:  # the host made this time up: we never sent it
            return
        self._pings.discard(pong.sent_s)
        rtt_s = self._clock.now() - pong.sent_s
        before_s = self._stats.rtt_s
        self._stats.rtt_s = rtt_s if before_s is None else before_s + _RTT_WEIGHT * (rtt_s - before_s)
        self._stats.load1 = pong.load1
        self._stats.cpu = pong.cpu
        self._stats.rss_bytes = pong.rss_bytes

    @property
    def _silent_beats_max(self) -> int:
        silent_s = max(self._heartbeat_timeout_s, _SILENT_ROUND_TRIPS * (self._stats.rtt_s or 0.0))
        return max(1, int(silent_s / self._heartbeat_s))

    async def _beat(self) -> None:
        silent_beats = 0  # beats, not seconds: a gateway that was suspended must not blame the host
        while silent_beats < self._silent_beats_max:
            now_s = self._clock.now()
            if len(self._pings) < _MAX_PINGS and self._pair.control.try_send(Ping(sent_s=now_s)):
                self._pings.add(now_s)
            await self._clock.sleep_until(now_s + self._heartbeat_s)
            self._meter.look(self._clock.now(), self._pair.data.tcp_counts())
            silent_beats = 0 if self._pair.has_received() else silent_beats + 1
        raise LinkLost(f"no heartbeat from {self.hello.host} for {silent_beats * self._heartbeat_s:g} s")


async def _greet(channel: Channel, host_name: str, session: str, name: messages.ChannelName) -> HostHello:
    await channel.send(GatewayHello(protocol=PROTOCOL, session=session, channel=name))
    hello = (await channel.receive()).message
    if not isinstance(hello, HostHello) or (hello.host, hello.session) != (host_name, session):
        raise FrameError(f"expected the hello of {host_name} for session {session}, got {hello!r:.200}")
    return hello


async def _have_it_prove_itself(
    channel: Channel, authority: Authority, host_name: str, token: bytes, certificate_der: bytes
) -> None:
    nonce = secrets.token_bytes(NONCE_BYTES)
    await channel.send(EnrolRequest(nonce=nonce))
    proof = (await channel.receive()).message
    if not isinstance(proof, EnrolProof):
        raise FrameError(f"{type(proof).__name__} instead of the proof of enrolment")
    if not same_mac(proof.mac, enrol_mac(token, certificate_der, nonce)):
        raise TrustError(f"{host_name} does not have its token, or the connection is intercepted")
    if not same_key(requested_key(proof.csr_pem), x509.load_der_x509_certificate(certificate_der)):
        raise TrustError(f"{host_name} requests a signature for another key than the one it presents")
    await channel.send(EnrolGrant(certificate_pem=authority.sign(proof.csr_pem, host_name)))
    done = (await channel.receive()).message
    if not isinstance(done, Enrolled):
        raise FrameError(f"{type(done).__name__} instead of the end of enrolment")


@asynccontextmanager
async def _opened(
    address: Address, context: ssl.SSLContext, host_name: str, name: messages.ChannelName, deadline_s: float
) -> AsyncIterator[Channel]:
    """Open a connection, and translate the errors of the body; without an error it stays open."""
    where = f"{host_name} at {address[0]}:{address[1]}"
    try:
        async with asyncio.timeout(deadline_s):
            channel = await _dial(address, context, host_name, name)
            try:
                yield channel
            except (LinkLost, FrameError, TrustError) as error:
                await channel.close(str(error))
                raise
            except BaseException:
                channel.abort()
                raise
    except TimeoutError as error:
        raise LinkLost(f"{where} did not answer within {deadline_s:g} s") from error
    except ssl.SSLError as error:
        raise TrustError(f"no trusted connection to {where}: {error}") from error
    except OSError as error:
        raise LinkLost(f"cannot reach {where}: {str(error) or type(error).__name__}") from error
    except FrameError as error:
        raise LinkLost(f"{where} does not speak this protocol: {error.reason}") from error
    except LinkLost as error:
        if isinstance(error.__cause__, ssl.SSLError):
            raise TrustError(f"{where} refused this gateway: {error.reason}") from error
        raise


async def _dial(address: Address, context: ssl.SSLContext, host_name: str, name: messages.ChannelName) -> Channel:
    reader, writer = await asyncio.open_connection(
        *address, ssl=context, server_hostname=host_name, limit=STREAM_LIMIT_BYTES, ssl_shutdown_timeout=_CLOSE_S
    )
    return Channel(reader, writer, name)
