"""A connection to a broker that acknowledges messages on request only: aiomqtt, with paho's own acknowledging off.

aiomqtt acknowledges on receipt. paho can wait at QoS 1, but at QoS 2 its manual acknowledgement holds only the last of
the four packets back: the PUBREC, after which the broker forgets the message, goes out at once. Here both wait.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Self

import aiomqtt
import paho.mqtt.client as paho
from aiomqtt.exceptions import MqttConnectError
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from gateway.connectors.heldpaho import held_in_place_of
from gateway.connectors.mqttbroker import Broker
from infra.together import wait_out

# How long a broker may take to answer.
ANSWER_S = 10.0
# A broker that is away with its connections open is noticed within twice this.
KEEPALIVE_S = 15
INBOX_BYTES = 16 << 20
# So much is sent before the broker has answered, if it allows.
IN_FLIGHT_MAX = 200
# What a message takes beside its payload, roughly.
_OVERHEAD_BYTES: Final = 512
_NO_SUCH_VERSION: Final = "Unsupported protocol version"


class BrokerError(Exception):
    """The broker cannot be used now; the message says which one and why."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message.

    Attributes:
        topic: where it was published.
        payload: its bytes.
        qos: with which it was delivered.
        packet_id: the broker's number of this delivery; 0 at QoS 0.
        again: the broker says that it may have sent this before (DUP).
    """

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    again: bool


@dataclass(frozen=True, slots=True)
class MessageReleased:
    """The broker knows that a message of QoS 2 has arrived, and will not send it again (PUBREL)."""

    packet_id: int


@dataclass(frozen=True, slots=True)
class Limits:
    """What the broker takes.

    Attributes:
        receive_max: so many messages before it has answered.
        packet_bytes_max: the largest packet; None when it does not say.
        qos_max: the highest quality of service.
    """

    receive_max: int = 65_535
    packet_bytes_max: int | None = None
    qos_max: int = 2


class MqttClient(aiomqtt.Client):
    """One connection: made, used and thrown away. Use ``async with``.

    Args:
        broker: where to.
        client_id: names the session that the broker keeps.
        session_s: how long the broker keeps the session while nobody is connected.
        version: of the protocol; with 3.1.1 the broker decides how long, and how much is in flight.
        receive_max: how many messages the broker may send that are not acknowledged.
        inbox_bytes: reading pauses while more than this waits to be taken; TCP then holds the broker back.
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
            timeout=ANSWER_S,
            keepalive=KEEPALIVE_S,
        )
        self._broker = broker
        # aiomqtt makes its paho client itself and has no argument for another one.
        self._held = held_in_place_of(self._client, broker, client_id, version, clean=session_s == 0)
        self._held.on_release = self._note_release
        self._client = self._held
        self._inbox: list[Arrival | MessageReleased] = []
        self._inbox_bytes = 0
        self._inbox_bytes_max = inbox_bytes
        self._paused = False
        self._wake = asyncio.Event()
        self._sent: dict[int, asyncio.Future[str]] = {}
        self._room = asyncio.Event()
        self.session_present = False
        self.limits = Limits()

    # -------------------------------------------------------------------------------------------------- connecting

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerError: it cannot be reached, or refuses.
        """
        # The thread that connects cannot be stopped: who cancels meanwhile waits for it, and what it made is closed.
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
            # It does not answer: there is nothing to say to it.
            self._abort()

    def _abort(self) -> None:
        self._client._sock_close()  # noqa: SLF001 - paho has no public way to close without a word

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
            disconnected.exception()  # taken note of: ``check`` tells
        self._wake.set()
        for packet_id in list(self._sent):
            self._answer(packet_id, "the connection broke before the broker answered")

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._disconnected.done()

    def check(self) -> None:
        """Return if the connection holds.

        Raises:
            BrokerError: it is gone.
        """
        if self.lost:
            raise BrokerError(f"{self._broker} closed the connection ({self._disconnected.exception()})")

    # --------------------------------------------------------------------------------------------------- receiving

    def _on_message(self, _client: paho.Client, _userdata: Any, message: paho.MQTTMessage) -> None:
        arrival = Arrival(message.topic, bytes(message.payload), message.qos, message.mid, bool(message.dup))
        self._put(arrival, len(message.payload))

    def _note_release(self, packet_id: int) -> None:
        self._put(MessageReleased(packet_id), 0)

    def _put(self, item: Arrival | MessageReleased, size_bytes: int) -> None:
        self._inbox.append(item)
        self._inbox_bytes += size_bytes + _OVERHEAD_BYTES
        self._wake.set()
        sock = self._client.socket()
        if self._inbox_bytes >= self._inbox_bytes_max and not self._paused and sock is not None:
            self._paused = True
            self._loop.remove_reader(sock.fileno())

    async def take(self) -> list[Arrival | MessageReleased]:
        """Return all that has come since, at least one thing, in order.

        What was not acknowledged when a connection broke comes again at QoS 1 and 2; only QoS 0 is taken then.

        Raises:
            BrokerError: the connection is gone, and nothing is left.
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
        if self._paused and sock is not None:
            self._paused = False
            self._loop.add_reader(sock.fileno(), self._read)
            # TLS may have unpacked bytes that no longer show on the socket.
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        try:
            while not self._paused and (sock := self._client.socket()) is not None:
                self._client.loop_read()
                if not getattr(sock, "pending", lambda: 0)():
                    break
        except Exception as error:  # as in aiomqtt: whatever it is, this connection is done
            if not self._disconnected.done():
                self._disconnected.set_exception(error)

    def acknowledge(self, arrival: Arrival) -> None:
        """Acknowledge a message to the broker; do nothing if the connection is lost."""
        if self.lost or arrival.qos == 0:
            return
        if arrival.qos == 1:
            self._client.ack(arrival.packet_id, 1)
        else:
            self._held.accept(arrival.packet_id)

    def complete(self, release: MessageReleased) -> None:
        """Tell the broker that it may use the packet id for another message (PUBCOMP)."""
        if not self.lost:
            self._client.ack(release.packet_id, 2)

    # ----------------------------------------------------------------------------------------------------- sending

    async def send(self, topic: str, payload: bytes, qos: int, spillway_id: str) -> asyncio.Future[str]:
        """Send a message once there is room in flight; version 5 only.

        Returns:
            What the broker answers: empty when it has taken the message, else why not.

        Raises:
            BrokerError: the connection is gone.
        """
        while len(self._sent) >= min(self.limits.receive_max, IN_FLIGHT_MAX) and not self.lost:
            self._room.clear()
            await self._room.wait()
        self.check()
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = ("spillway-id", spillway_id)
        info = self._client.publish(topic, payload, qos, properties=properties)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise BrokerError(f"{self._broker} cannot be written to ({paho.error_string(info.rc)})")
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
    """Return what happened, as the end of a sentence that begins with the broker."""
    text = str(error)
    if isinstance(error, MqttConnectError):
        return f"refuses the connection ({text}): check login and access rights"
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return f"shows a certificate that is not believed ({text}): tls.ca must be its authority, and host its name"
    return text if "instead of answering" in text else f"cannot be reached ({text})"


def speaks_no_5(error: BrokerError) -> bool:
    """Return whether the broker refused because it knows only older versions of the protocol."""
    return _NO_SUCH_VERSION in str(error)
