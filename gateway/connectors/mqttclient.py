"""A connection to a broker that acknowledges messages only on request: aiomqtt without paho's own acknowledgements.

aiomqtt acknowledges on receipt. paho can wait at QoS 1, but at QoS 2 its manual acknowledgement delays only the last of
the four packets: it sends PUBREC at once, and then the broker forgets the message. This client delays both.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import aiomqtt
import paho.mqtt.client as paho
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.connectors.heldpaho import Arrival, held_in_place_of
from gateway.connectors.mqttbroker import Broker
from infra.together import wait_out

# How long a broker may take to answer.
ANSWER_S = 10.0
# A lost broker whose connections stay open is noticed within twice this time.
KEEPALIVE_S = 15
INBOX_BYTES = 16 << 20
# The most messages in flight to the broker, if it allows that many.
IN_FLIGHT_MAX = 200
# Approximate size of a message besides its payload.
_OVERHEAD_BYTES: Final = 512
_NO_SUCH_VERSION: Final = "Unsupported protocol version"


class BrokerError(Exception):
    """The broker cannot be used now; the message says which one and why."""


@dataclass(frozen=True, slots=True)
class MessageReleased:
    """The broker knows that a QoS 2 message has arrived, and will not send it again (PUBREL)."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Limits:
    """The broker's limits.

    Attributes:
        receive_max: the most messages in flight.
        packet_bytes_max: the largest packet; None if the broker does not report it.
        qos_max: the highest quality of service.
    """

    receive_max: int = 65_535
    packet_bytes_max: int | None = None
    qos_max: int = 2


class MqttClient(aiomqtt.Client):
    """One connection, used once. Use ``async with``.

    Args:
        broker: the address and login.
        client_id: identifies the session that the broker keeps.
        session_s: how long the broker keeps the session while nobody is connected.
        version: of the protocol; with 3.1.1 the broker decides how long, and how much is in flight.
        receive_max: how many messages the broker may send that are not acknowledged.
        inbox_bytes: reading pauses while more than this waits to be taken; TCP then holds the broker back.
        answer_s: how long an answer of the broker is waited for.
    """

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        *,
        session_s: int,
        version: aiomqtt.ProtocolVersion = aiomqtt.ProtocolVersion.V5,
        receive_max: int = 1000,
        inbox_bytes: int = INBOX_BYTES,
        answer_s: float = ANSWER_S,
    ) -> None:
        properties = None
        if version is aiomqtt.ProtocolVersion.V5:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = session_s
            properties.ReceiveMaximum = receive_max
        super().__init__(
            broker.host,
            broker.port,
            identifier=client_id,
            protocol=version,
            clean_start=session_s == 0 if properties else paho.MQTT_CLEAN_START_FIRST_ONLY,
            properties=properties,
            timeout=answer_s,
            keepalive=KEEPALIVE_S,
        )
        self._broker = broker
        # aiomqtt creates its paho client itself and cannot be given another one.
        self._held = held_in_place_of(self._client, broker, client_id, version, clean=session_s == 0)
        self._held.on_release = self._note_release
        self._held.on_arrival = self._note_arrival
        self._client = self._held
        self._inbox: list[Arrival | MessageReleased] = []
        self._inbox_bytes = 0
        self._inbox_bytes_max = inbox_bytes
        self._wake = asyncio.Event()
        self._sent: dict[int, asyncio.Future[str]] = {}
        self._room = asyncio.Event()
        self.session_present = False
        self.limits = Limits()

    # -------------------------------------------------------------------------------------------------- connecting

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerError: it cannot be reached, or refuses the connection.
        """
        # The thread that connects cannot be stopped: a cancelled caller waits for it, and its connection is closed.
        try:
            await wait_out(super().__aenter__())
        except asyncio.CancelledError:
            self._abort()
            raise
        except aiomqtt.MqttError as error:
            self._abort()
            raise BrokerError(f"{self._broker} {_reason(error)}") from error
        self._disconnected.add_done_callback(self._note_loss)
        return self

    async def __aexit__(self, *raised: Any) -> None:
        """Disconnect; the broker keeps the session."""
        try:
            await super().__aexit__(*raised)
        except aiomqtt.MqttError:
            # The broker does not answer, so there is no point in a goodbye.
            self._abort()

    def _abort(self) -> None:
        self._client._sock_close()  # noqa: SLF001 - paho has no public way to close without DISCONNECT

    def _on_connect(
        self,
        client: paho.Client,
        userdata: Any,
        flags: paho.ConnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        self.session_present = bool(flags.session_present)
        self.limits = Limits(
            getattr(properties, "ReceiveMaximum", 65_535),
            getattr(properties, "MaximumPacketSize", None),
            getattr(properties, "MaximumQoS", 2),
        )
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(
        self,
        client: paho.Client,
        userdata: Any,
        flags: paho.DisconnectFlags,
        reason_code: ReasonCode,
        properties: Properties | None = None,
    ) -> None:
        if not self._connected.done():
            # aiomqtt would wait for an answer that cannot come any more.
            self._connected.set_exception(aiomqtt.MqttError("closed the connection instead of answering"))
        super()._on_disconnect(client, userdata, flags, reason_code, properties)

    def _note_loss(self, disconnected: asyncio.Future[None]) -> None:
        if not disconnected.cancelled():
            disconnected.exception()  # marks it as retrieved; ``check`` reports it
        self._wake.set()
        for packet_id in list(self._sent):
            self._answer(packet_id, "the connection broke before the broker answered")

    @property
    def paused(self) -> bool:
        """Whether reading pauses, because much waits to be taken."""
        return self._held.paused

    @property
    def waiting_count(self) -> int:
        """How many messages and releases wait to be taken."""
        return len(self._inbox)

    @property
    def unanswered_count(self) -> int:
        """How many messages were sent that the broker has not answered."""
        return len(self._sent)

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._disconnected.done()

    def check(self) -> None:
        """Return if the connection is open.

        Raises:
            BrokerError: it is lost.
        """
        if self.lost:
            raise BrokerError(f"{self._broker} closed the connection ({self._disconnected.exception()})")

    # --------------------------------------------------------------------------------------------------- receiving

    def _on_message(self, _client: paho.Client, _userdata: Any, message: paho.MQTTMessage) -> None:
        again = bool(message.dup)
        self._note_arrival(Arrival(message.topic, bytes(message.payload), message.qos, message.mid, again))

    def _note_arrival(self, arrival: Arrival) -> None:
        self._put(arrival, len(arrival.payload))

    def _note_release(self, packet_id: int) -> None:
        self._put(MessageReleased(packet_id), 0)

    def _put(self, item: Arrival | MessageReleased, size_bytes: int) -> None:
        self._inbox.append(item)
        self._inbox_bytes += size_bytes + _OVERHEAD_BYTES
        self._wake.set()
        sock = self._client.socket()
        if self._inbox_bytes >= self._inbox_bytes_max and not self._held.paused and sock is not None:
            self._held.paused = True
            self._loop.remove_reader(sock.fileno())

    async def take(self) -> list[Arrival | MessageReleased]:
        """Return everything that has arrived since, at least one item, in order.

        Unacknowledged messages of a broken connection come again at QoS 1 and 2, so then only those of QoS 0 are
        returned.

        Raises:
            BrokerError: the connection is lost, and no message is left.
        """
        while True:
            taken, self._inbox, self._inbox_bytes = self._inbox, [], 0
            if self.lost:
                taken = [item for item in taken if isinstance(item, Arrival) and item.qos == 0]
            if taken:
                self._read_on()
                return taken
            self.check()
            self._wake.clear()
            await self._wake.wait()

    def _read_on(self) -> None:
        sock = self._client.socket()
        if self._held.paused and sock is not None:
            self._held.paused = False
            self._loop.add_reader(sock.fileno(), self._read)
            # TLS may have decoded bytes that the socket no longer shows.
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        try:
            while not self._held.paused and (sock := self._client.socket()) is not None:
                self._client.loop_read()
                if not getattr(sock, "pending", lambda: 0)():
                    break
        except Exception as error:  # as in aiomqtt: after any error this connection is over
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def acknowledge(self, arrivals: Sequence[Arrival]) -> None:
        """Acknowledge messages to the broker, in order; do nothing if the connection is lost."""
        if not self.lost:
            self._held.acknowledge((arrival.qos, arrival.packet_id) for arrival in arrivals)

    def complete(self, release: MessageReleased) -> None:
        """Report to the broker that it may use the packet id for another message (PUBCOMP)."""
        if not self.lost:
            self._client.ack(release.packet_id, 2)

    # ----------------------------------------------------------------------------------------------------- sending

    async def send(self, topic: str, payload: bytes, qos: int, spillway_id: str) -> asyncio.Future[str]:
        """Send a message once there is room in flight; version 5 only.

        Returns:
            The broker's answer: empty when it has accepted the message, else why not.

        Raises:
            BrokerError: the connection is lost.
        """
        while len(self._sent) >= min(self.limits.receive_max, IN_FLIGHT_MAX) and not self.lost:
            self._room.clear()
            await self._room.wait()
        self.check()
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = ("spillway-id", spillway_id)
        info = self._client.publish(topic, payload, qos, properties=properties)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise BrokerError(f"{self._broker} does not accept data ({paho.error_string(info.rc)})")
        answer = self._sent[info.mid] = self._loop.create_future()
        return answer

    def _on_publish(
        self, _client: paho.Client, _userdata: Any, mid: int, reason_code: ReasonCode, _properties: Properties
    ) -> None:
        self._answer(mid, str(reason_code) if reason_code.is_failure else "")

    def _answer(self, packet_id: int, text: str) -> None:
        answer = self._sent.pop(packet_id, None)
        if answer is not None and not answer.done():
            answer.set_result(text)
        self._room.set()


def _reason(error: aiomqtt.MqttError) -> str:
    """Return the reason, as the end of a sentence that begins with the broker."""
    text = str(error)
    if isinstance(error, MqttConnectError):
        return f"refuses the connection ({text}): check login and access rights"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"presents a certificate that is not trusted ({text}): tls.ca must be its authority, and host its name"
    return text if "instead of answering" in text else f"cannot be reached ({text})"


def speaks_no_5(error: BrokerError) -> bool:
    """Return whether the broker refused because it knows only older versions of the protocol."""
    return _NO_SUCH_VERSION in str(error)
