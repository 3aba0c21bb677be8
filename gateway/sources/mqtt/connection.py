"""One connection of an MQTT source: receives messages, and acknowledges them once they are in the journal."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.connectors.heldpaho import Arrival
from gateway.connectors.mqttbroker import Broker
from gateway.connectors.mqttclient import BrokerError, MessageReleased, MqttClient, speaks_no_5
from gateway.journal.journal import Journal, JournalFullError
from gateway.sources.mqtt.session import Session
from infra.clock import Clock
from infra.retries import FailedTry, Retries
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
# How long the broker keeps messages while the gateway is away.
SESSION_S: Final = 7 * 86_400
_CONNECTS: Final = Retries(first_s=0.2, most_s=5.0)
_WRITES: Final = Retries(first_s=0.1, most_s=1.0)
_REFUSED: Final = 0x80
_OLD_VERSION: Final = aiomqtt.ProtocolVersion.V311
# Retained messages come with a new subscription, not with a renewed one.
_RETAINED_IF_NEW: Final = 1
T = TypeVar("T")


class _StoppingError(Exception):
    """The gateway ends; messages that are not in the journal come again."""


class MqttConnection:
    """One client id: reconnects whenever needed, and writes received messages to the journal."""

    def __init__(
        self,
        client_id: str,
        session: Session,
        filters: dict[str, int],
        broker: Broker,
        inbox_bytes: int,
        journal: Journal,
        clock: Clock,
    ) -> None:
        self.session = session
        self.trouble = ""
        self._client_id = client_id
        self._filters = filters
        self._broker = broker
        self._inbox_bytes = inbox_bytes
        self._journal = journal
        self._clock = clock
        self._version = aiomqtt.ProtocolVersion.V5
        self._tried = asyncio.Event()
        self._stopping = asyncio.Event()
        self._keeping = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin; return after the first try to connect."""
        self._task = asyncio.create_task(self._run(), name=self._client_id)
        await self._tried.wait()

    async def stop(self) -> None:
        """Finish the append in progress, acknowledge it, and disconnect."""
        self._stopping.set()
        async with self._keeping:
            if self._task is not None:
                self._task.cancel()
        await end_tasks(self._task)

    async def _run(self) -> None:
        try:
            while True:
                await _CONNECTS.retry(self._connect_once, self._clock, (BrokerError, OSError), heard=self._note_failure)
        except _StoppingError:
            return

    def _note_failure(self, failed: FailedTry) -> None:
        self._say(str(failed.error))
        self._tried.set()

    async def _connect_once(self) -> None:
        """Use one connection; return once one that had worked is lost, so that the pauses begin anew."""
        try:
            await self._connect()
        except (BrokerError, OSError) as error:
            if isinstance(error, BrokerError) and speaks_no_5(error) and self._version != _OLD_VERSION:
                self._version = _OLD_VERSION
            elif self.trouble or not self._tried.is_set():
                raise
            else:
                self._say(str(error))
                await self._clock.sleep_until(self._clock.now() + _CONNECTS.first_s)

    def _say(self, trouble: str) -> None:
        if trouble and not self.trouble:
            _LOG.error("%s: %s: retrying until it works", self._client_id, trouble)
        elif self.trouble and not trouble:
            _LOG.warning("%s: %s works again", self._client_id, self._broker)
        self.trouble = trouble

    async def _connect(self) -> None:
        client = MqttClient(
            self._broker,
            self._client_id,
            session_s=SESSION_S,
            version=self._version,
            receive_max=self.session.receive_max,
            inbox_bytes=self._inbox_bytes,
        )
        async with client:
            if not client.session_present:
                await self.session.begin()
                await self._journal.note(self.session.notes())
            # The session's messages come at once, and may fill the inbox before the broker answers a subscription.
            work = {asyncio.create_task(self._take_all(client)), asyncio.create_task(self._begin(client))}
            try:
                done, _ = await asyncio.wait(work, return_when=asyncio.FIRST_EXCEPTION)
            finally:
                # An append in progress is completed: otherwise its outcome would be unknown, and it would come again.
                async with self._keeping:
                    for task in work:
                        task.cancel()
                await end_tasks(*work)
            for task in done:
                task.result()

    async def _begin(self, client: MqttClient) -> None:
        await self._subscribe(client)
        self._say("")
        self._tried.set()

    async def _take_all(self, client: MqttClient) -> None:
        while True:
            items = await client.take()
            async with self._keeping:
                if self._stopping.is_set():
                    raise _StoppingError
                await self.keep(client, items)

    async def _subscribe(self, client: MqttClient) -> None:
        """Give the session exactly these subscriptions."""
        old = {topic: qos for topic, qos in self.session.filters.items() if topic not in self._filters}
        await self._note_filters(old | self._filters)
        try:
            if self._filters:
                answers: Sequence[ReasonCode | int] = await client.subscribe(self._options())
                for topic, answer in zip(self._filters, answers, strict=True):
                    self._check(topic, answer)
            if old:
                await client.unsubscribe(list(old))
        except aiomqtt.MqttError as error:
            raise BrokerError(f"{self._broker} did not answer to a subscription ({error})") from error
        await self._note_filters(self._filters)

    async def _note_filters(self, filters: dict[str, int]) -> None:
        if filters != self.session.filters:
            await self.session.note_filters(filters)
            await self._journal.note(self.session.filters_note())

    def _options(self) -> list[tuple[str, SubscribeOptions]] | list[tuple[str, int]]:
        if self._version is _OLD_VERSION:
            return list(self._filters.items())
        return [(topic, SubscribeOptions(qos, retainHandling=_RETAINED_IF_NEW)) for topic, qos in self._filters.items()]

    def _check(self, topic: str, answer: ReasonCode | int) -> None:
        granted = answer.value if isinstance(answer, ReasonCode) else answer
        if granted >= _REFUSED:
            raise BrokerError(
                f"{self._broker} refuses the subscription to {topic} ({answer}): check that this user may read it"
            )
        if granted < self._filters[topic]:
            raise BrokerError(
                f"{self._broker} delivers {topic} with QoS {granted} at most, and qos is {self._filters[topic]}: "
                f"allow it there, or set qos: {granted}"
            )

    # ------------------------------------------------------------------------------------------- into the journal

    async def keep(self, client: MqttClient, items: Sequence[Arrival | MessageReleased]) -> None:
        """Append what is new, then answer everything, in order."""
        releases = [item for item in items if isinstance(item, MessageReleased)]
        arrivals = [item for item in items if isinstance(item, Arrival)]
        fresh = [arrival for arrival in arrivals if not self.session.is_known(arrival)]
        key = await self._insist(
            "the session's file", lambda: self.session.note(fresh, releases, self._journal.next_record)
        )
        copied = self._journal.replicated and bool(key or releases)
        if copied and not fresh:
            await self._insist("the journal's copy", lambda: self._journal.note(self.session.ids_note()))
        if not (copied and fresh):
            self._complete(client, releases)
        if fresh:
            await self._append(fresh, key, self.session.ids_note() if copied else {})
            self.session.made()
        if copied and fresh:
            # The copy knows by now that the ids are free; the broker may use them again as soon as it knows.
            self._complete(client, releases)
        client.acknowledge(arrivals)

    def _complete(self, client: MqttClient, releases: Sequence[MessageReleased]) -> None:
        for release in releases:
            client.complete(release)

    async def _append(self, fresh: Sequence[Arrival], key: str, notes: Mapping[str, bytes]) -> None:
        payloads, topics = [arrival.payload for arrival in fresh], [arrival.topic for arrival in fresh]
        append = self._journal.append
        await self._insist("the journal", lambda: append(payloads, key=key, topics=topics, notes=notes))

    async def _insist(self, what: str, action: Callable[[], Awaitable[T]]) -> T:
        """Do something on the disk until it succeeds; meanwhile the broker has no answer, and holds messages back."""

        def heard(failed: FailedTry) -> None:
            if isinstance(failed.error, OSError):
                self._say(f"{what} cannot be written ({failed.error})")
            elif failed.is_news:
                why = failed.error
                _LOG.warning("%s: %s: messages are not acknowledged until there is room", self._client_id, why)

        try:
            result = await _WRITES.retry(
                action,
                self._clock,
                (JournalFullError, OSError),
                worth=lambda _: not self._stopping.is_set(),
                heard=heard,
            )
        except (JournalFullError, OSError) as error:
            raise _StoppingError from error
        self._say("")
        return result
