"""paho's client, made to answer the broker on request only, with aiomqtt's callbacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

import aiomqtt
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion

from gateway.connectors.mqttbroker import Broker

# What aiomqtt hooks into its paho client.
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


class HeldPaho(paho.Client):
    """paho's client, which tells of a QoS 2 message when it comes, not when it is released, and answers when told to.

    It never sends PUBREC, and sends PUBACK and PUBCOMP only from ``ack``: make it with ``manual_ack=True``.
    """

    on_release: Callable[[int], None]

    def accept(self, packet_id: int) -> None:
        """Tell the broker that a QoS 2 message is safe (PUBREC)."""
        super()._send_pubrec(packet_id)

    def _send_pubrec(self, mid: int) -> MQTTErrorCode:  # noqa: ARG002 - as paho calls it
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _handle_publish(self) -> MQTTErrorCode:
        outcome = super()._handle_publish()
        while self._in_messages:
            _, message = self._in_messages.popitem()
            self._handle_on_message(message)
        return outcome

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
    # ``send`` bounds what is in flight, by what the broker allows.
    held.max_inflight_messages_set(0)
    return held
