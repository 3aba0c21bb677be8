"""A paho client that acknowledges messages only on request, with aiomqtt's callbacks."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from gateway.connectors.mqttbroker import Broker

# The callbacks that aiomqtt sets on its paho client.
CALLBACKS: Final = (
    "on_connect",
    "on_disconnect",
    "on_subscribe",
    "on_unsubscribe",
    "on_message",
    "on_publish",
    "on_socket_open",
    "on_socket_close",
    "on_socket_register_write",
    "on_socket_unregister_write",
)
# Reason codes from this one on say that the broker refuses a message.
_REFUSED: Final = 0x80
# As much is received at once; some 100 messages, so that the event loop is not held for long.
_RECEIVE_BYTES: Final = 32 << 10
# Packets of four bytes each: kind, length, packet id.
_PUBACK: Final = 0x40
_PUBREC: Final = 0x50
_DUP: Final = 0x08
_ANSWER: Final = struct.Struct("!BBH")


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message.

    Attributes:
        topic: where it was published.
        payload: its bytes.
        qos: the QoS of its delivery.
        packet_id: the broker's number of this delivery; 0 at QoS 0.
        again: the broker may have sent this message before (DUP).
    """

    topic: str
    payload: bytes
    qos: int
    packet_id: int
    again: bool


class HeldPaho(paho.Client):
    """A paho client that reports a QoS 2 message on arrival, not on release, and acknowledges only on request.

    It never sends PUBREC or PUBACK by itself, but from ``acknowledge``, and PUBCOMP only from ``ack``: create it with
    ``manual_ack=True``.

    A PUBREC that refuses a message ends its delivery. paho would send PUBREL, and report success when the broker
    answers that: mosquitto answers it without a reason.

    It receives what is there at once, where paho calls the system four times for each message, and sends the
    acknowledgements of a group together.

    Attributes:
        paused: nothing is read while this is set; what was received already waits for ``loop_read``.
    """

    on_release: Callable[[int], None]
    on_arrival: Callable[[Arrival], None]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.paused = False
        self._received = b""
        self._read_bytes = 0

    def acknowledge(self, answers: Iterable[tuple[int, int]]) -> None:
        """Report to the broker, in this order, that messages are safe (PUBACK, or PUBREC at QoS 2).

        Args:
            answers: QoS and packet id of each message; QoS 0 has no answer.
        """
        packets = [_ANSWER.pack(_PUBACK if qos == 1 else _PUBREC, 2, packet_id) for qos, packet_id in answers if qos]
        if packets:
            super()._packet_queue(_PUBACK, b"".join(packets), 0, 1)

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read packets until everything received is read, or ``paused`` is set."""
        outcome = MQTTErrorCode.MQTT_ERR_SUCCESS
        while outcome == MQTTErrorCode.MQTT_ERR_SUCCESS and not self.paused:
            outcome = super().loop_read(max_packets)
            if self._read_bytes == len(self._received):
                break
        return outcome

    def _sock_recv(self, bufsize: int) -> bytes:
        if self._read_bytes == len(self._received):
            self._received, self._read_bytes = super()._sock_recv(max(bufsize, _RECEIVE_BYTES)), 0
        at, self._read_bytes = self._read_bytes, min(self._read_bytes + bufsize, len(self._received))
        return self._received[at : self._read_bytes]

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:  # noqa: ARG002 - as paho calls it
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        if self._take_plain(self._in_packet["command"], self._in_packet["packet"]):
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        outcome = super()._handle_publish()
        while self._in_messages:
            _, message = self._in_messages.popitem()
            self._handle_on_message(message)
        return outcome

    def _take_plain(self, command: int, packet: bytes | bytearray) -> bool:
        """Report a message if it has no properties; paho takes twice as long, for objects that nobody reads."""
        qos, topic_end = command >> 1 & 3, 2 + int.from_bytes(packet[:2], "big")
        payload_at = topic_end + (2 if qos else 0) + (self._protocol == MQTTProtocolVersion.MQTTv5)
        if qos > 2 or topic_end == 2 or len(packet) < payload_at:
            return False
        if self._protocol == MQTTProtocolVersion.MQTTv5 and packet[payload_at - 1]:
            return False
        packet_id = int.from_bytes(packet[topic_end : topic_end + 2], "big") if qos else 0
        topic = bytes(packet[2:topic_end]).decode()
        self.on_arrival(Arrival(topic, bytes(packet[payload_at:]), qos, packet_id, again=bool(command & _DUP)))
        return True

    def _handle_pubrec(self) -> MQTTErrorCode:
        packet = self._in_packet["packet"]
        refused = len(packet) > 2 and packet[2] >= _REFUSED
        return self._handle_pubackcomp("PUBACK") if refused else super()._handle_pubrec()

    def _handle_pubrel(self) -> MQTTErrorCode:
        self.on_release(int.from_bytes(self._in_packet["packet"][:2], "big"))
        return super()._handle_pubrel()


def held_in_place_of(
    made: paho.Client, broker: Broker, client_id: str, version: aiomqtt.ProtocolVersion, *, clean: bool
) -> HeldPaho:
    """Return a client with aiomqtt's callbacks that acknowledges on request only."""
    held = HeldPaho(
        CallbackAPIVersion.VERSION2,
        client_id=client_id,
        clean_session=clean if version is not aiomqtt.ProtocolVersion.V5 else None,
        protocol=MQTTProtocolVersion(version.value),
        reconnect_on_failure=False,
        manual_ack=True,
    )
    for name in CALLBACKS:
        setattr(held, name, getattr(made, name))
    held.enable_logger(logging.getLogger("mqtt"))
    if broker.user is not None:
        held.username_pw_set(broker.user, broker.password)
    if broker.tls is not None:
        held.tls_set_context(broker.tls)
    # ``send`` limits the messages in flight, by the broker's limit.
    held.max_inflight_messages_set(0)
    return held
