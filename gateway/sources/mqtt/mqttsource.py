"""Messages of an MQTT broker, acknowledged once they are in the journal; see docs/decisions/0012."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gateway.config.connectors.mqtt import MqttSourceConfig
from gateway.connectors.mqttbroker import broker_of
from gateway.connectors.position import Position
from gateway.journal.journal import Journal
from gateway.journal.replica import Replica
from gateway.journal.scan import keys_since
from gateway.sources.journaled import JournaledSource
from gateway.sources.mqtt.connection import MqttConnection
from gateway.sources.mqtt.session import RECEIVE_MAX, Session, restore_sessions
from infra.clienttls import BadTlsFilesError
from infra.clock import Clock
from infra.rows.base import SourceError, SourceUnavailableError
from infra.statefiles import StateError
from infra.threads import run_to_end

# How much waits in memory for the journal, over all connections; each may hold one message more.
_INBOX_BYTES: Final = 32 << 20


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
        self._connections: list[MqttConnection] = []

    async def start(self) -> None:
        """See ``Receiver.start``; returns when each connection was tried once."""
        try:
            broker = await run_to_end(lambda: broker_of(self._config))
        except BadTlsFilesError as error:
            raise SourceError(str(error)) from error
        filters = self._names.filters(self._config)
        await self._make_sessions()
        count = max(self._config.clients, await run_to_end(self._count_known))
        # One append may exceed the journal's limit by what is read at once.
        inbox_bytes = min(_INBOX_BYTES, self._config.journal.limit_bytes // 4) // count
        for number in range(count):
            session = Session(self._path(number), self._receive_max)
            await self._open(session)
            wanted = filters if number < self._config.clients else {}
            self._connections.append(
                MqttConnection(
                    self._names.client_id(number), session, wanted, broker, inbox_bytes, self._journal, self._clock
                )
            )
        await asyncio.gather(*(connection.start() for connection in self._connections))

    async def _make_sessions(self) -> None:
        """Make the sessions' files from the copy of the journal, which is never behind them."""
        try:
            await run_to_end(lambda: restore_sessions(self._names.folder, self._journal.notes))
        except OSError as error:
            raise SourceUnavailableError(f"{self._names.folder} cannot be written ({error})") from error

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
        try:
            await journal.note(session.notes())
        except OSError as error:
            raise SourceUnavailableError(f"the session of {self._names.query} cannot be copied ({error})") from error

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
