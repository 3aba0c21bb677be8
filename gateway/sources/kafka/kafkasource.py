"""A source over Kafka topics.

The query's own log is authoritative for what was read: a ``Position`` holds the next offset of each partition, and two
positions name exactly the same records for as long as the topic has them. The group's offsets inform others: the next
owner of a partition, and monitoring of the lag.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Collection, Mapping, Sequence
from typing import Final, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.errors import IllegalStateError, KafkaError

from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.connectors.kafkaclients import client_settings
from gateway.connectors.position import Position
from gateway.sources.base import Ahead, Backlog, Chunk, Loaded
from gateway.sources.kafka.formats import record_format
from gateway.sources.kafka.lent import Lent
from gateway.sources.kafka.member import Member
from gateway.sources.kafka.partitions import key_of, offset_ranges, offsets_before, partition_of, ranges_between
from gateway.sources.kafka.sampled import shares
from gateway.sources.kafka.sightings import Sightings
from infra.clienttls import BadTlsFilesError
from infra.clock import Clock
from infra.kafka.events import RecordDecoder
from infra.kafka.fetched import as_source_errors, gone
from infra.kafka.rereader import Rereader
from infra.messages import OffsetRange
from infra.rows.base import SourceError, SourceUnavailableError
from policies.arrays import Array

_LOG = logging.getLogger(__name__)
# How long a read waits for a first record, which it returns at once: each wait of an idle query costs some CPU.
_WAIT_S: Final = 0.25
_ASSIGNED_S: Final = 0.05
_COMMIT_S: Final = 5.0
T = TypeVar("T")


class KafkaSource:
    """See ``Source``. Brokers are contacted only for reading: a gateway can start while they are down.

    Args:
        config: the source's config.
        query: the query's name, for the default of the group.
        owner: see ``SourceContext``.
        strict: see ``SourceContext``.
        sink_commits: see ``SourceContext``.
    """

    def __init__(
        self,
        config: KafkaSourceConfig,
        *,
        query: str,
        owner: str,
        clock: Clock,
        strict: bool = False,
        sink_commits: bool = False,
    ) -> None:
        self._config = config
        self._clock = clock
        self._group = config.group or f"spillway-{query}"
        self._instance = f"spillway-{owner}"
        self._strict = strict
        self._sink_commits = sink_commits
        # aiokafka reports the reason of a refused login only in its log.
        self._brokers = config.brokers if config.sasl is None else f"{config.brokers} as {config.sasl.user}"
        self._position = Position()
        self._acked: dict[str, int] = {}
        self._member: Member | None = None
        self._lent = Lent()
        self._rereaders: tuple[Rereader, ...] = ()
        self._looks_ahead = False
        self._sightings: defaultdict[TopicPartition, Sightings] = defaultdict(Sightings)
        self._ends: dict[TopicPartition, int] = {}

    @property
    def member(self) -> Member | None:
        """Its place in the group; None before the first read, and after a failure."""
        return self._member

    async def open(self, schema: pa.Schema) -> None:
        """See ``Source.open``."""
        self._decoder = RecordDecoder(record_format(self._config, strict=self._strict), schema)
        try:
            self._settings = client_settings(self._config)
        except BadTlsFilesError as error:
            raise SourceError(str(error)) from error
        # Ranges may be read at any time, also while the source itself reads again.
        self._rereader = Rereader(self._settings, f"reading again from {self._brokers}")
        self._ranges = Rereader(self._settings, f"reading from {self._brokers}")
        self._rereaders = (self._rereader, self._ranges)

    # ------------------------------------------------------------------------------------------------------ reading

    async def seek(self, position: Position) -> None:
        """See ``Source.seek``."""
        await self._rereader.stop()
        self._position = position
        if self._member is not None:
            self._member.rewind()

    async def read(self, max_records: int, max_bytes: int) -> Chunk | None:
        """See ``Source.read``; the records are split evenly over the partitions, ordered by partition and offset."""
        return await self._attempt(self._read(max_records, max_bytes))

    async def _attempt(self, work: Awaitable[T]) -> T:
        """Return the outcome of an attempt to read; raise the errors of sources."""
        try:
            with as_source_errors(f"reading from {self._brokers}"):
                return await work
        except SourceUnavailableError as error:
            # Whatever the state of the client, a new one replaces it and gets the same partitions at once.
            if isinstance(error.__cause__, KafkaError):
                await self._leave()
            raise

    async def _begun(self, *, ahead: bool) -> Member | None:
        """Return the member once its partitions have begun; None if none have yet."""
        member = await self._joined()
        if ahead is not self._looks_ahead:
            # What was fetched and not read counts for nothing, and what was not fetched is not there.
            self._looks_ahead = ahead
            member.rewind()
        if member.may_begin:
            begins = await member.begin(self._position.offsets)
            self._position = self._after(0, begins)
            # Everything that was acknowledged until now.
            member.acknowledge(self._acked)
            self._sightings.clear()
        if not member.partitions:
            # The first assignment, or a rebalance in progress; or all are lent.
            await self._lent.change_within(_WAIT_S if self._lent.partitions else _ASSIGNED_S)
            return None
        return member

    async def _read(self, max_records: int, max_bytes: int) -> Chunk | None:
        member = await self._begun(ahead=False)
        if member is None:
            return None
        generation = member.generation
        try:
            await member.fill(max_records, max_bytes, wait_s=_WAIT_S)
        except IllegalStateError:
            return None  # the partitions are being revoked
        if generation != member.generation:
            return None
        records = member.fetched.first(max_records, max_bytes)
        if not records:
            silent_s = member.silent_s()
            if silent_s is not None:
                raise SourceUnavailableError(
                    f"the brokers {self._config.brokers} have not answered for {silent_s:.0f} s"
                )
            return None
        batch, dead = await asyncio.to_thread(self._decoder.decode, records, self._position.record)
        if generation != member.generation:
            return None
        # No await from here on: records that are removed must be returned.
        ends = member.fetched.take()
        member.deliver(ends)
        start, self._position = self._position, self._after(len(records), ends)
        more = member.fetched.count > 0 or member.unfetched() > 0
        return Chunk(batch, start, self._position, dead, _walls_s(records), more)

    async def ahead(self, max_records: int, max_bytes: int) -> Ahead | None:  # noqa: ARG002
        """See ``ReferableSource.ahead``; offsets are split evenly over the partitions, ordered by partition."""
        return await self._attempt(self._ahead(max_records))

    async def _ahead(self, max_records: int) -> Ahead | None:
        member = await self._begun(ahead=True)
        if member is None:
            return None
        generation = member.generation
        try:
            ends = await member.ends()
        except IllegalStateError:
            return None  # the partitions are being revoked
        if generation != member.generation:
            return None
        # No await from here on: records that are passed over must be returned.
        self._ends, wall_s = ends, self._clock.wall()
        for partition, end in ends.items():
            self._sightings[partition].note(end, wall_s)
        if lost := {each: at for each, end in ends.items() if end < (at := self._position.offsets[key_of(each)])}:
            raise gone(lost)
        there = {each: end - self._position.offsets[key_of(each)] for each, end in ends.items()}
        wanted = {each: count for each, count in shares(there, max_records).items() if count}
        if not wanted:
            return None
        start, arrivals = self._position, []
        taken = {}
        for partition, count in sorted(wanted.items()):
            begin = start.offsets[key_of(partition)]
            taken[partition] = begin + count
            arrivals.append(self._sightings[partition].arrivals_s(begin, begin + count))
            self._sightings[partition].forget(begin + count)
        member.deliver(taken)
        self._position = self._after(sum(wanted.values()), taken)
        return Ahead(start, self._position, np.concatenate(arrivals), sum(wanted.values()) < sum(there.values()))

    async def ranges(self, start: Position, end: Position) -> tuple[OffsetRange, ...]:
        """See ``ReferableSource.ranges``."""
        return offset_ranges(start, end)

    async def read_range(self, start: Position, end: Position) -> Loaded:
        """See ``ReferableSource.read_range``."""
        begins, ends = ranges_between(start, end)
        records = await self._ranges.read(begins, ends, end.record - start.record)
        batch, dead = await asyncio.to_thread(self._decoder.decode, records, start.record)
        index = offsets_before(records, begins, ends)
        no_events = [each.record - start.record for each in dead]
        return Loaded(batch, np.delete(index, no_events), tuple(zip(index[no_events].tolist(), dead, strict=True)))

    def _after(self, records: int, offsets: dict[TopicPartition, int]) -> Position:
        merged = {**self._position.offsets, **{key_of(partition): offset for partition, offset in offsets.items()}}
        return msgspec.structs.replace(self._position, record=self._position.record + records, offsets=merged)

    async def read_between(self, start: Position, end: Position) -> Chunk:
        """See ``Source.read_between``."""
        changed = {key: offset for key, offset in end.offsets.items() if start.offsets.get(key) != offset}
        unknown = [key for key in changed if key not in start.offsets]
        if unknown:
            raise SourceError(f"the position of record {start.record} does not say where {', '.join(unknown)} stood")
        begins = {partition_of(key): start.offsets[key] for key in changed}
        ends = {partition_of(key): offset for key, offset in changed.items()}
        records = await self._rereader.read(begins, ends, end.record - start.record)
        if len(records) != end.record - start.record:
            raise SourceError(
                f"records {start.record} to {end.record - 1} were read from {', '.join(sorted(changed))}, but there "
                f"are {len(records)} now: the topic was compacted or created again. Restore it; or, to continue "
                "without them, give the query a new state_dir and another group"
            )
        batch, dead = await asyncio.to_thread(self._decoder.decode, records, start.record)
        return Chunk(batch, start, end, dead, _walls_s(records))

    async def finished(self) -> bool:
        """See ``Source.finished``: a topic has no end."""
        return False

    def backlog(self) -> Backlog | None:
        """See ``Source.backlog``; offsets without a record (ends of transactions) count until they are fetched."""
        member = self._member
        if member is None or not member.partitions:
            return None
        if self._looks_ahead:
            return self._backlog_ahead()
        return Backlog(member.fetched.count + member.unfetched(), member.fetched.oldest_wall_s())

    def _backlog_ahead(self) -> Backlog:
        count, oldest = 0, []
        for partition, end in self._ends.items():
            begin = self._position.offsets.get(key_of(partition), end)
            if begin < end:
                count += end - begin
                oldest.append(float(self._sightings[partition].arrivals_s(begin, begin + 1)[0]))
        return Backlog(count, min(oldest, default=None))

    # ----------------------------------------------------------------------------------------------- lent partitions

    def places(self) -> dict[str, int]:
        """Return the next offset of each partition that has begun and is not lent."""
        member = self._member
        keys = [] if member is None else map(key_of, member.partitions)
        return {key: self._position.offsets[key] for key in keys}

    @property
    def wanted_back(self) -> bool:
        """Whether the consumer group waits for partitions that are lent."""
        return self._lent.wanted_back.is_set()

    def lend(self, places: Collection[str]) -> dict[str, int]:
        """Let somebody else deliver partitions that have begun; return the offset at which each goes on.

        What was read of them before may not be delivered yet: see ``settled``.

        Raises:
            SourceUnavailableError: they are not here any more.
        """
        here = self.places()
        if self._member is None or not here.keys() >= set(places):
            raise SourceUnavailableError(f"group {self._group} has no {', '.join(sorted(places))} here any more")
        self._member.lend([partition_of(place) for place in places])
        return {place: here[place] for place in places}

    def settled(self, places: Collection[str]) -> bool:
        """Return whether everything that was read of these partitions is acknowledged."""
        return self._member is not None and self._member.settled([partition_of(place) for place in places])

    async def lent_ends(self) -> dict[str, int]:
        """Return where the partitions end that are lent; nothing if there is no connection now.

        Raises:
            SourceUnavailableError: the brokers do not answer.
        """
        member = self._member
        if member is None or not self._lent.partitions:
            return {}
        with as_source_errors(f"asking {self._brokers} for the ends of topics"):
            return {key_of(partition): end for partition, end in (await member.lent_ends()).items()}

    def take_back(self, offsets: Mapping[str, int]) -> None:
        """Read lent partitions again: somebody else has delivered everything before these offsets."""
        by_number = {partition_of(place): offset for place, offset in offsets.items()}
        self._position = self._after(0, by_number)
        if self._member is None:
            self._lent.partitions.difference_update(by_number)
        else:
            self._member.take_back(by_number)

    # ------------------------------------------------------------------------------------------------ group and end

    async def acknowledge(self, position: Position) -> None:
        """See ``Source.acknowledge``: the offsets are committed to the group, if the sink has not done so already."""
        self._acked = position.offsets
        member = self._member
        if member is None:
            return
        member.acknowledge(position.offsets)
        if not member.partitions:
            return  # committed when they are revoked, or have begun
        try:
            async with asyncio.timeout(_COMMIT_S):
                await member.commit()
        except (KafkaError, TimeoutError) as error:
            raise SourceUnavailableError(f"offsets of group {self._group} are not committed: {error!r}") from error

    async def close(self) -> None:
        """See ``Source.close``."""
        for rereader in self._rereaders:
            await rereader.stop()
        await self._leave()

    async def _joined(self) -> Member:
        if self._member is None:
            member = Member(
                self._settings,
                self._config.topics,
                self._group,
                self._instance,
                self._clock,
                sink_commits=self._sink_commits,
                lent=self._lent,
            )
            self._member = member
            try:
                await member.join(from_end=self._config.start == "latest" and not self._position.offsets)
            except BaseException:
                await self._leave()
                raise
        return self._member

    async def _leave(self) -> None:
        member, self._member = self._member, None
        if member is not None:
            await member.stop()


def _walls_s(records: Sequence[ConsumerRecord]) -> Array | None:
    """Return the brokers' timestamps (s since 1970)."""
    times = np.array([record.timestamp for record in records if record.timestamp >= 0])
    return times / 1000 if len(times) else None
