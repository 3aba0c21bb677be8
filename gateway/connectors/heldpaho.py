"""A paho client that acknowledges messages only on request, with aiomqtt's callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

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


class HeldPaho(paho.Client):
    """A paho client that reports a QoS 2 message on arrival, not on release, and acknowledges only on request.

    It never sends PUBREC by itself, and sends PUBACK and PUBCOMP only from ``ack``: create it with ``manual_ack=True``.

    A PUBREC that refuses a message ends its delivery. paho would send PUBREL, and report success when the broker
    answers that: mosquitto answers it without a reason.
    """

    on_release: Callable[[int], None]

    def accept(self, packet_id: int) -> None:
        """Report to the broker that a QoS 2 message is safe (PUBREC)."""
        super()._send_pubrec(packet_id)

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:  # noqa: ARG002 - as paho calls it
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        outcome = super()._handle_publish()
        while self._in_messages:
            _, message = self._in_messages.popitem()
            self._handle_on_message(message)
        return outcome

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
