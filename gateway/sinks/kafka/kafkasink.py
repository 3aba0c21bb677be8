"""The Kafka sink: results, the progress of the query and the source's offsets in the same transactions.

The writer: a query has one transactional id, so a new producer fences the producers before it and settles their
transactions. After that, and before the first write, the control topic shows which results are committed, to which
state they belong, and which epoch wrote them. Whenever the outcome of a transaction is uncertain, the producer is
closed and the same steps are repeated. So nothing is ever written on the basis of a guess.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced

from gateway.config.connectors.kafka import KafkaSinkConfig
from gateway.connectors.kafkaclients import client_settings
from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import FencedError, Handover, ReleasedRows, SinkUnavailableError
from gateway.sinks.kafka.carried import CarriedParts
from gateway.sinks.kafka.control import ControlRecord, ControlTopic
from gateway.sinks.kafka.naming import EventName
from gateway.sinks.kafka.producer import (
    BATCH_BYTES,
    KAFKA_ERRORS,
    BatchTooLargeError,
    BatchWriter,
    discard_producer,
    start_producer,
)
from gateway.sinks.kafka.records import Partitioner, RecordMaker, split_by_size
from infra.clienttls import BadTlsFilesError
from infra.clock import Clock
from infra.failpoints import reached
from infra.retries import Retries
from infra.statefiles import StateError
from infra.threads import run_to_end

_LOG = logging.getLogger(__name__)
# The most that one transaction holds (as Arrow), so that it ends long before the brokers' time-out; a release is never
# split.
_TRANSACTION_BYTES = 32 * 2**20
_TRANSACTION_S = 100.0
_SILENCE_S = 15.0
_SETTLE_S = 30.0
# Batches shrink by this factor when the topic refuses such a large one.
_SHRINK = 8
_DUEL = Retries(first_s=0.1, most_s=1.0, tries=5)


class KafkaSink:
    """See ``Sink``.

    Args:
        config: the sink's config.
        query: names the records of progress.
        owner: identity of the state that numbers the seqs.
        epoch: counts the gateways that opened that state.
        clock: measures pauses.
        offsets_group: the consumer group of a source on the same brokers, whose offsets move with the results.
        handover: what is stored for the next owner of the fleet; None without a fleet.
        replaces_by: the columns that name a row, if a row replaces the earlier one with the same values in them.
        transaction_bytes: larger commits take several transactions.
        silence_s: brokers that confirm nothing for this long are unreachable.

    Raises:
        StateError: a file of ``tls`` cannot be read.
    """

    def __init__(
        self,
        config: KafkaSinkConfig,
        *,
        query: str,
        owner: str,
        epoch: int,
        clock: Clock,
        offsets_group: str | None = None,
        handover: Handover | None = None,
        replaces_by: Sequence[str] | None = None,
        transaction_bytes: int = _TRANSACTION_BYTES,
        silence_s: float = _SILENCE_S,
    ) -> None:
        self.committed = IntervalSet()
        self._config = config
        self._query = query
        self._owner = owner
        self._epoch = epoch
        self._clock = clock
        self._writer = secrets.token_hex(8)
        self._group = offsets_group
        self._handover = handover
        self._stored = msgspec.Raw(b"null")
        self._transaction_bytes = transaction_bytes
        self._silence_s = silence_s
        try:
            self._settings = client_settings(config)
        except BadTlsFilesError as error:
            raise StateError(f"query {query}: {error}") from error
        self._control = ControlTopic(config.progress_topic, query, self._settings, clock)
        # A topic's name cannot contain a colon.
        self._transactional_id = f"spillway:{self._control.topic}:{query}"
        self._maker = RecordMaker(config.key, config.headers, replaces_by)
        self._partitioner = Partitioner()
        self._batch_bytes = BATCH_BYTES
        self._producer: AIOKafkaProducer | None = None
        # Whether the outcome of everything that the producer did is known.
        self._settled = False
        self._opened = False
        self._source = Position()
        self._carried = CarriedParts()
        self._writing = asyncio.Lock()

    async def open(self) -> None:
        """See ``Sink.open``.

        Raises:
            FencedError: a gateway with a higher epoch of the same state writes here.
        """
        try:
            async with self._reachable("be opened", _SETTLE_S):
                await self._control.prepare(self._config.topic)
            await self._claim()
        except BaseException:
            await self.close()
            raise
        self._opened = True

    async def _claim(self) -> None:
        # An older gateway took its producer for timed out just now, and yields once it sees the claim.
        await _DUEL.retry(
            self._settle,
            self._clock,
            SinkUnavailableError,
            worth=lambda error: isinstance(error.__cause__, ProducerFenced | InvalidProducerEpoch),
        )

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        """See ``Sink.commit``; large commits take several transactions, each with the progress up to it."""
        async with self._writing:
            await self._settle()
            await self._commit_new(releases, source)

    async def _commit_new(self, releases: Sequence[ReleasedRows], source: Position) -> None:
        new = [release for release in releases if not self.committed.covers(release.first_seq, release.last_seq)]
        groups = split_by_size(new, self._transaction_bytes)
        for group in groups:
            await self._commit_group(group, source if group is groups[-1] else None)

    @property
    def direct(self) -> Mapping[int, int] | None:
        """Where in the results' topic those may begin that Spark itself has delivered; see ``ControlRecord``."""
        return self._carried.results()

    @property
    def passed(self) -> bool:
        """Whether nothing is left out any more of what Spark has delivered."""
        return self._carried.settled

    @property
    def source(self) -> Position:
        """The position in the source up to which every result is committed."""
        return self._source

    async def note_direct(self, part: str, offsets: Mapping[str, int], results: Mapping[int, int]) -> None:
        """Commit that Spark has delivered everything of a part of the source before these offsets, and perhaps more.

        Args:
            part: names it, among those of this query; the gateway may deliver other parts meanwhile.
            offsets: of its partitions, as in ``Position.offsets``.
            results: see ``ControlRecord.direct``.

        Raises:
            StateError, FencedError or SinkUnavailableError: as for ``commit``.
        """
        async with self._writing:
            await self._settle()
            self._carried.note(part, offsets, results)
            await self._transact([], self._source)

    def leave_out(self, part: str, delivered: Mapping[EventName, int]) -> None:
        """Leave out results that Spark has delivered of a part, until that place in the source is passed."""
        self._carried.leave_out(part, delivered)
        self._maker.delivered = self._carried.names

    async def close(self) -> None:
        """See ``Sink.close``."""
        producer, self._producer, self._settled = self._producer, None, False
        if producer is not None:
            await discard_producer(producer)

    async def _commit_group(self, group: Sequence[ReleasedRows], source: Position | None) -> None:
        """Commit one transaction; retry with smaller batches if the brokers refuse such a large one."""
        while True:
            try:
                await self._transact(group, source)
            except BatchTooLargeError:
                self._batch_bytes = max(1, self._batch_bytes // _SHRINK)
                _LOG.warning(
                    "%s: topic %s does not accept a batch this large: retrying with at most %d bytes",
                    self._query,
                    self._config.topic,
                    self._batch_bytes,
                )
                await self._settle()
            else:
                return

    async def _transact(self, group: Sequence[ReleasedRows], source: Position | None) -> None:
        producer = self._producer
        assert producer is not None, "the sink is settled before it is written"
        committed = IntervalSet([*self.committed, *((release.first_seq, release.last_seq) for release in group)])
        position = self._carried.merged(self._source if source is None else source)
        passed = self._carried.passed(position)
        stored = await self._to_store(committed) if group else self._stored
        direct = self._carried.results(passed)
        self._settled = False
        ends_s = asyncio.get_running_loop().time() + _TRANSACTION_S
        async with self._reachable("take results", self._silence_s) as wait:
            await producer.begin_transaction()
            await self._send_results(producer, group, lambda: wait(ends_s))
            if source is not None:
                await self._send_offsets(producer, position)
            # Last, so that other queries' readers of the control topic wait as briefly as possible.
            progress = ControlRecord(self._owner, self._epoch, self._writer, list(committed), position, stored, direct)
            await producer.send_and_wait(
                self._control.topic, msgspec.json.encode(progress), key=self._control.key, partition=0
            )
            if group:
                reached("sink.commit.prepared")
            await producer.commit_transaction()
            if group:
                reached("sink.commit.visible")
        self.committed, self._source, self._stored = committed, position, stored
        if passed:
            self._carried.forget(passed)
            self._maker.delivered = self._carried.names
        self._settled = True

    async def _to_store(self, committed: IntervalSet) -> msgspec.Raw:
        handover = self._handover
        return msgspec.Raw(b"null" if handover is None else await run_to_end(lambda: handover.after(committed)))

    async def _send_results(
        self, producer: AIOKafkaProducer, group: Sequence[ReleasedRows], on_confirmed: Callable[[], None]
    ) -> None:
        partitions = sorted(await producer.partitions_for(self._config.topic))
        writer = BatchWriter(
            producer, self._config.topic, partitions, self._partitioner, self._batch_bytes, on_confirmed
        )
        for release in group:
            await writer.add(await run_to_end(partial(self._maker.records, release)), release)
        await writer.finish()

    async def _send_offsets(self, producer: AIOKafkaProducer, source: Position) -> None:
        if self._group is None:
            return
        offsets = {}
        for place, offset in source.offsets.items():
            topic, _, partition = place.rpartition("/")
            # Only offsets that moved: a topic that was deleted meanwhile would be waited for.
            if offset != self._source.offsets.get(place):
                offsets[TopicPartition(topic, int(partition))] = offset
        if offsets:
            await producer.send_offsets_to_transaction(offsets, self._group)

    # ---------------------------------------------------------------------------------------------------- settling

    async def _settle(self) -> None:
        """Find out what is committed if that is uncertain: fence earlier writers, and read the control topic.

        Raises:
            StateError, FencedError or SinkUnavailableError: as for ``open`` and ``commit``.
        """
        if self._settled:
            return
        await self.close()
        async with self._reachable("be asked what it has", _SETTLE_S):
            # Also checked before, so that a gateway with an old epoch fences nobody.
            self._judge(await self._control.last(settled=False))
            self._producer = await start_producer(self._settings, self._transactional_id)
            last = await self._control.last(settled=True)
            self._judge(last)
        if last is not None:
            self.committed, self._source = IntervalSet(last.committed), last.source
            self._stored = last.handover.copy()
            if not self._opened:
                self._carried.found(last.direct)
        if self._handover is not None and not self._opened:
            self._handover.found(bytes(self._stored))
        if last is None or last.writer != self._writer:
            # The claim: it shows a fenced writer who fenced it, from the first moment on.
            await self._transact([], None)
        self._settled = True

    def _judge(self, last: ControlRecord | None) -> None:
        if last is None:
            return
        if last.owner != self._owner:
            raise StateError(
                f"the topic {self._config.topic} has results of query {self._query} from a different state_dir "
                f"(control topic {self._control.topic}): restore the state, or choose another topic"
            )
        newer = last.epoch > self._epoch
        # A copy of the state_dir has the same epoch; the gateway that opened the sink last wins.
        copied = self._opened and last.epoch == self._epoch and last.writer != self._writer
        if newer or copied:
            raise FencedError(
                f"another gateway has taken over query {self._query} (its epoch is {last.epoch}, this one's "
                f"{self._epoch}): stop one of the two, and let each have a state_dir of its own"
            )

    @asynccontextmanager
    async def _reachable(self, what: str, limit_s: float) -> AsyncIterator[Callable[[float], None]]:
        """Translate Kafka's errors; yield a function that restarts the time limit, but not beyond a given time."""
        where = f"Kafka at {self._config.brokers} cannot {what}"
        clock = asyncio.get_running_loop().time
        try:
            async with asyncio.timeout(limit_s) as limit:
                yield lambda ends_s: limit.reschedule(min(ends_s, clock() + limit_s))
        except TimeoutError as error:
            raise SinkUnavailableError(f"{where}: no answer in time") from error
        except (ProducerFenced, InvalidProducerEpoch) as error:
            await self._tell_if_taken_over()
            raise SinkUnavailableError(
                f"{where}: its transaction took too long, or another gateway has just opened the query"
            ) from error
        except KAFKA_ERRORS as error:
            raise SinkUnavailableError(f"{where}: {error or type(error).__name__}") from error

    async def _tell_if_taken_over(self) -> None:
        """Check who fenced this writer.

        Raises:
            FencedError: a gateway that has claimed the query since.
        """
        try:
            async with asyncio.timeout(_SETTLE_S):
                last = await self._control.last(settled=False)
        except (*KAFKA_ERRORS, TimeoutError, OSError) as error:
            _LOG.debug("%s: the control topic cannot be read now: %r", self._query, error)
            return
        self._judge(last)
