"""Messages of an MQTT broker, acknowledged once they are in the journal; see docs/decisions/0012."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from gateway.config.connectors.mqtt import MqttSourceConfig
from gateway.connectors.mqttbroker import Broker, broker_of
from gateway.connectors.mqttclient import Arrival, BrokerError, MessageReleased, MqttClient, speaks_no_5
from gateway.connectors.position import Position
from gateway.connectors.tlsfiles import BadTlsFilesError
from gateway.journal.journal import Journal, JournalFullError
from gateway.journal.replica import Replica
from gateway.journal.scan import keys_since
from gateway.sources.base import SourceError, SourceUnavailableError
from gateway.sources.journaled import JournaledSource
from gateway.sources.mqtt.session import RECEIVE_MAX, Session
from infra.clock import Clock
from infra.retries import FailedTry, Retries
from infra.statefiles import StateError
from infra.threads import run_to_end
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
# How long the broker keeps messages while the gateway is away.
SESSION_S: Final = 7 * 86_400
# How much waits in memory for the journal, over all connections; each may hold one message more.
_INBOX_BYTES: Final = 32 << 20
_CONNECTS: Final = Retries(first_s=0.2, most_s=5.0)
_WRITES: Final = Retries(first_s=0.1, most_s=1.0)
_REFUSED: Final = 0x80
_OLD_VERSION: Final = aiomqtt.ProtocolVersion.V311
# Retained messages come with a new subscription, not with a renewed one.
_RETAINED_IF_NEW: Final = 1
T = TypeVar("T")


class _StoppingError(Exception):
    """The gateway ends; messages that are not in the journal come again."""


@dataclass(frozen=True, slots=True)
class MqttNames:
    """The names of a query's source at the broker and on disk.

    Attributes:
        folder: for the sessions' files; created if it does not exist.
        query: its name.
        owner: identity of its state.
    """

    folder: Path
    query: str
    owner: str

    def client_id(self, number: int) -> str:
        """Return the id of a connection."""
        return f"spillway-{self.query}-{self.owner}-{number}"

    def filters(self, config: MqttSourceConfig) -> dict[str, int]:
        """Return the subscriptions of each connection."""
        share = f"$share/spillway-{self.query}-{self.owner}/" if config.clients > 1 else ""
        return {share + topic: config.qos for topic in config.topics}


class MqttReceiver:
    """See ``Receiver``; one connection or several, which share the subscription.

    A session that the config does not need any more stays connected without a subscription: the broker may still hold
    messages for it.

    Args:
        config: the source's config.
        names: see there.
        journal: opened before ``start``.
        clock: time.
        receive_max: see ``Session``.
    """

    def __init__(
        self,
        config: MqttSourceConfig,
        names: MqttNames,
        journal: Journal,
        clock: Clock,
        *,
        receive_max: int = RECEIVE_MAX,
    ) -> None:
        self._config = config
        self._receive_max = receive_max
        self._names = names
        self._journal = journal
        self._clock = clock
        self._connections: list[_Connection] = []

    async def start(self) -> None:
        """See ``Receiver.start``; returns when each connection was tried once."""
        try:
            broker = await run_to_end(lambda: broker_of(self._config))
        except BadTlsFilesError as error:
            raise SourceError(str(error)) from error
        filters = self._names.filters(self._config)
        count = max(self._config.clients, await run_to_end(self._count_known))
        # One append may exceed the journal's limit by what is read at once.
        inbox_bytes = min(_INBOX_BYTES, self._config.journal.limit_bytes // 4) // count
        for number in range(count):
            session = Session(self._path(number), self._receive_max)
            await self._open(session)
            wanted = filters if number < self._config.clients else {}
            self._connections.append(
                _Connection(
                    self._names.client_id(number), session, wanted, broker, inbox_bytes, self._journal, self._clock
                )
            )
        await asyncio.gather(*(connection.start() for connection in self._connections))

    def _path(self, number: int) -> Path:
        return self._names.folder / f"session-{number}.json"

    def _count_known(self) -> int:
        self._names.folder.mkdir(parents=True, exist_ok=True)
        numbers = (int(path.stem.removeprefix("session-")) for path in self._names.folder.glob("session-*.json"))
        return max(numbers, default=-1) + 1

    async def _open(self, session: Session) -> None:
        journal = self._journal
        try:
            await session.open(lambda record: keys_since(journal.folder, record, journal.next_record))
        except StateError as error:
            raise SourceError(str(error)) from error
        except OSError as error:
            raise SourceUnavailableError(f"{self._names.folder} cannot be read ({error})") from error

    async def stop(self) -> None:
        """See ``Receiver.stop``."""
        await asyncio.gather(*(connection.stop() for connection in self._connections))
        self._connections = []

    @property
    def failure(self) -> SourceUnavailableError | None:
        """See ``Receiver.failure``."""
        trouble = next((connection.trouble for connection in self._connections if connection.trouble), "")
        return SourceUnavailableError(trouble) if trouble else None

    async def settle(self, position: Position) -> None:
        """Prepare for the journal to delete everything before ``position``.

        Raises:
            OSError: not now.
        """
        for connection in self._connections:
            await connection.session.settle(position.record)


class _Connection:
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
        await self.session.note_filters(old | self._filters)
        try:
            if self._filters:
                answers: Sequence[ReasonCode | int] = await client.subscribe(self._options())
                for topic, answer in zip(self._filters, answers, strict=True):
                    self._check(topic, answer)
            if old:
                await client.unsubscribe(list(old))
        except aiomqtt.MqttError as error:
            raise BrokerError(f"{self._broker} did not answer to a subscription ({error})") from error
        await self.session.note_filters(self._filters)

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
        for release in releases:
            client.complete(release)
        if fresh:
            payloads, topics = [arrival.payload for arrival in fresh], [arrival.topic for arrival in fresh]
            await self._insist("the journal", lambda: self._journal.append(payloads, key=key, topics=topics))
            self.session.made()
        for arrival in arrivals:
            client.acknowledge(arrival)

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


class MqttSource(JournaledSource):
    """The messages that an MQTT receiver writes to a journal; see ``Source``.

    Args:
        config: the source's config.
        names: see there.
        journal: of this query.
        clock: time.
        strict: see ``LineDecoder``.
        receive_max: see ``Session``.
    """

    def __init__(
        self,
        config: MqttSourceConfig,
        names: MqttNames,
        journal: Journal,
        clock: Clock,
        *,
        strict: bool = False,
        receive_max: int = RECEIVE_MAX,
    ) -> None:
        receiver = MqttReceiver(config, names, journal, clock, receive_max=receive_max)
        super().__init__(journal, receiver, format=config.format, strict=strict)
        self._sessions = receiver

    async def acknowledge(self, position: Position) -> None:
        """See ``Source.acknowledge``."""
        await self._sessions.settle(position)
        await super().acknowledge(position)


def make_mqtt_source(
    config: MqttSourceConfig,
    folder: Path,
    *,
    query: str,
    owner: str,
    clock: Clock,
    strict: bool,
    receive_max: int = RECEIVE_MAX,
    replica: Replica | None = None,
) -> MqttSource:
    """Return the source of a query whose state is in ``folder``."""
    journal = Journal(
        folder / "journal",
        limit_bytes=config.journal.limit_bytes,
        segment_bytes=config.journal.segment_bytes,
        clock=clock,
        replica=replica,
    )
    names = MqttNames(folder / "mqtt", query, owner)
    return MqttSource(config, names, journal, clock, strict=strict, receive_max=receive_max)
