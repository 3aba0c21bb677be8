"""paho's client, which acknowledges a message only when it is told to.

paho's ``manual_ack`` holds back the PUBACK of QoS 1 and the PUBCOMP of QoS 2. At QoS 2 that is too late: the broker
forgets a message when it has the PUBREC, and paho sends the PUBREC at once, before it hands the message over. So
``HeldPaho`` changes three methods of paho (docs/decisions/0093).
"""

from __future__ import annotations

from collections.abc import Callable

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode


class HeldPaho(paho.Client):
    """paho's client, made with ``manual_ack``, which also holds back the PUBREC of QoS 2.

    It hands over a QoS 2 message when it comes, not when the broker releases it. It sends PUBREC only from ``accept``.
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

    def _handle_pubrel(self) -> MQTTErrorCode:
        # paho keeps the id to itself when it has not seen the message since it connected.
        self.on_release(int.from_bytes(self._in_packet["packet"][:2], "big"))
        return super()._handle_pubrel()
