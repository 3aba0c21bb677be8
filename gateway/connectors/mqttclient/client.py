"""What a source and a sink do with a broker: receive and acknowledge, subscribe, send."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

import paho.mqtt.client as paho
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.connectors.mqttbroker import Broker
from gateway.connectors.mqttclient.terms import Arrival, BrokerError, Limits, Release
from gateway.connectors.mqttclient.wire import V5, Wire

ANSWER_S: Final = 10.0
INBOX_BYTES: Final = 16 << 20
# At most this many messages are sent before the broker has answered, even if it allows more.
IN_FLIGHT_MAX: Final = 200
# What a message takes beside its payload, roughly.
_OVERHEAD_BYTES: Final = 512
_REFUSED: Final = 0x80
# Retained messages come when a subscription is new, not when it is renewed.
_RETAINED_IF_NEW: Final = 1


class Client:
    """One connection: opened, used and closed once. Use ``async with``.

    Args:
        broker: where to connect.
        client_id: names the session that the broker keeps.
        session_s: how long the broker keeps the session while nobody is connected.
        version: of the protocol. With 3.1.1 the broker decides how long it keeps sessions, and how much is in flight.
        receive_max: how many messages the broker may send that are not acknowledged.
        inbox_bytes: reading pauses while more than this waits to be taken; TCP then holds the broker back.
        answer_s: how long the broker may take to answer.
    """

    def __init__(
        self,
        broker: Broker,
        client_id: str,
        *,
        session_s: int,
        version: MQTTProtocolVersion = V5,
        receive_max: int = 1000,
        inbox_bytes: int = INBOX_BYTES,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._broker = broker
        self._version = version
        self._answer_s = answer_s
        self._inbox: list[Arrival | Release] = []
        self._inbox_bytes = 0
        self._inbox_bytes_max = inbox_bytes
        self._wake = asyncio.Event()
        self._asked: dict[int, asyncio.Future[list[ReasonCode]]] = {}
        self._sent: dict[int, asyncio.Future[str]] = {}
        self._room = asyncio.Event()
        self._wire = Wire(
            broker,
            client_id,
            session_s=session_s,
            version=version,
            receive_max=receive_max,
            answer_s=answer_s,
            on_lost=self._on_lost,
        )
        self._paho = self._wire.paho
        self._paho.on_message = self._on_message
        self._paho.on_release = self._on_release
        self._paho.on_publish = self._on_publish
        self._paho.on_subscribe = self._paho.on_unsubscribe = self._on_answer

    async def __aenter__(self) -> Self:
        """Connect.

        Raises:
            BrokerError: the broker cannot be reached, or refuses.
        """
        await self._wire.connect()
        return self

    async def __aexit__(self, *raised: object) -> None:
        """Disconnect; the broker keeps the session."""
        await self._wire.disconnect()

    def _on_lost(self) -> None:
        self._wake.set()
        for packet_id in list(self._sent):
            self._settle(packet_id, "the connection broke before the broker answered")
        self._room.set()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(BrokerError(f"{self._broker} {self._wire.lost_why}"))

    @property
    def lost(self) -> bool:
        """Whether the connection is gone."""
        return self._wire.lost_why is not None

    @property
    def session_present(self) -> bool:
        """Whether the broker has kept the session."""
        return self._wire.session_present

    @property
    def limits(self) -> Limits:
        """What the broker accepts."""
        return self._wire.limits

    def check(self) -> None:
        """Return if the connection holds.

        Raises:
            BrokerError: it is gone.
        """
        if self.lost:
            raise BrokerError(f"{self._broker} {self._wire.lost_why}")

    # -------------------------------------------------------------------------------------------------- subscribing

    async def subscribe(self, filters: Mapping[str, int]) -> None:
        """Subscribe to each topic filter with its QoS.

        Raises:
            BrokerError: the broker refuses one, grants less, or does not answer.
        """
        wanted: Any = list(filters.items())
        if self._version == V5:
            wanted = [(name, SubscribeOptions(qos, retainHandling=_RETAINED_IF_NEW)) for name, qos in filters.items()]
        answers = await self._ask("a subscription", *self._paho.subscribe(wanted))
        for (name, qos), answer in zip(filters.items(), answers, strict=True):
            self._check_granted(name, qos, answer)

    def _check_granted(self, name: str, qos: int, answer: ReasonCode) -> None:
        if answer.value >= _REFUSED:
            raise BrokerError(
                f"{self._broker} refuses the subscription to {name} ({answer}): see that this user may read it"
            )
        if answer.value < qos:
            raise BrokerError(
                f"{self._broker} delivers {name} with QoS {answer.value} at most, and qos is {qos}: "
                f"allow it there, or set qos: {answer.value}"
            )

    async def unsubscribe(self, names: Sequence[str]) -> None:
        """End the subscriptions to these topic filters.

        Raises:
            BrokerError: the broker does not answer.
        """
        await self._ask("the end of a subscription", *self._paho.unsubscribe(list(names)))

    async def _ask(self, what: str, code: MQTTErrorCode, packet_id: int | None) -> list[ReasonCode]:
        """Return the broker's answer to a request that paho has sent."""
        self.check()
        if packet_id is None:
            raise BrokerError(f"{self._broker} cannot be written to ({paho.error_string(code)})")
        asked: asyncio.Future[list[ReasonCode]] = asyncio.get_running_loop().create_future()
        self._asked[packet_id] = asked
        try:
            async with asyncio.timeout(self._answer_s):
                return await asked
        except TimeoutError as error:
            raise BrokerError(f"{self._broker} did not answer to {what} within {self._answer_s:g} s") from error
        finally:
            del self._asked[packet_id]

    def _on_answer(
        self, _client: paho.Client, _data: Any, packet_id: int, answers: list[ReasonCode], _said: Properties | None
    ) -> None:
        asked = self._asked.get(packet_id)
        if asked is not None and not asked.done():
            asked.set_result(answers)

    # --------------------------------------------------------------------------------------------------- receiving

    def _on_message(self, _client: paho.Client, _data: Any, message: paho.MQTTMessage) -> None:
        arrival = Arrival(message.topic, bytes(message.payload), message.qos, message.mid, bool(message.dup))
        self._put(arrival, len(message.payload))

    def _on_release(self, packet_id: int) -> None:
        self._put(Release(packet_id), 0)

    def _put(self, item: Arrival | Release, size_bytes: int) -> None:
        self._inbox.append(item)
        self._inbox_bytes += size_bytes + _OVERHEAD_BYTES
        self._wake.set()
        if self._inbox_bytes >= self._inbox_bytes_max and self._wire.reading:
            self._wire.pause()

    @property
    def reading(self) -> bool:
        """Whether it reads from the broker; it does not while too much waits to be taken."""
        return self._wire.reading

    @property
    def waiting(self) -> int:
        """How many items wait to be taken."""
        return len(self._inbox)

    async def take(self) -> list[Arrival | Release]:
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
                self._wire.resume()
                return taken
            self.check()
            self._wake.clear()
            await self._wake.wait()

    def acknowledge(self, arrival: Arrival) -> None:
        """Acknowledge a message to the broker; do nothing if the connection is lost."""
        if self.lost or arrival.qos == 0:
            return
        if arrival.qos == 1:
            self._paho.ack(arrival.packet_id, 1)
        else:
            self._paho.accept(arrival.packet_id)

    def complete(self, release: Release) -> None:
        """Permit the broker to use the packet id for another message (PUBCOMP)."""
        if not self.lost:
            self._paho.ack(release.packet_id, 2)

    # ----------------------------------------------------------------------------------------------------- sending

    async def send(self, topic: str, payload: bytes, qos: int, spillway_id: str) -> asyncio.Future[str]:
        """Send a message once there is room in flight; version 5 only.

        Returns:
            What the broker answers: empty when it has accepted the message, else why not.

        Raises:
            BrokerError: the connection is gone.
        """
        while len(self._sent) >= min(self.limits.receive_max, IN_FLIGHT_MAX) and not self.lost:
            self._room.clear()
            await self._room.wait()
        self.check()
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.UserProperty = ("spillway-id", spillway_id)
        info = self._paho.publish(topic, payload, qos, properties=properties)
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            raise BrokerError(f"{self._broker} cannot be written to ({paho.error_string(info.rc)})")
        answer = self._sent[info.mid] = asyncio.get_running_loop().create_future()
        return answer

    def _on_publish(
        self, _client: paho.Client, _data: Any, packet_id: int, reason: ReasonCode, _said: Properties | None
    ) -> None:
        self._settle(packet_id, str(reason) if reason.is_failure else "")

    def _settle(self, packet_id: int, text: str) -> None:
        answer = self._sent.pop(packet_id, None)
        if answer is not None and not answer.done():
            answer.set_result(text)
        self._room.set()
