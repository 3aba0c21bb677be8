"""A transactional producer that can always be closed, and the batches of one transaction."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import IllegalOperation, KafkaError, MessageSizeTooLargeError, RecordListTooLargeError
from aiokafka.producer.message_accumulator import BatchBuilder

from gateway.connectors.kafkaclients import close_client, start_client
from gateway.sinks.base import ReleasedRows, SinkError
from gateway.sinks.kafka.records import KafkaRecord, Partitioner

_LOG = logging.getLogger(__name__)
# aiokafka's errors when it cannot carry out a call; an assertion means that a transaction is in another state than the
# caller knows (its own task noticed first).
KAFKA_ERRORS = (KafkaError, IllegalOperation, AssertionError)
BATCH_BYTES = 256 * 1024
_IN_FLIGHT_BYTES_MAX = 8 * 2**20
_RECORD_OVERHEAD_BYTES = 32
_BATCH_HEAD_BYTES = 4096
# A dead gateway's open transaction hides later records from readers for this long.
TRANSACTION_TIMEOUT_MS = 120_000
_REQUEST_TIMEOUT_MS = 10_000
_STOP_S = 3.0
_CANCELS = 30
_CANCEL_S = 0.1


async def start_producer(settings: dict[str, Any], transactional_id: str) -> AIOKafkaProducer:
    """Return a producer that has fenced all earlier ones with its id and settled their transactions."""
    producer = AIOKafkaProducer(
        **settings,
        transactional_id=transactional_id,
        transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        request_timeout_ms=_REQUEST_TIMEOUT_MS,
        max_batch_size=BATCH_BYTES + _BATCH_HEAD_BYTES,
        linger_ms=0,
    )
    try:
        await start_client(producer)
    except BaseException:
        await discard_producer(producer)
        raise
    return producer


async def discard_producer(producer: AIOKafkaProducer) -> None:
    """Close a producer, whatever its state and that of the brokers, within seconds; a caller that is cancelled waits.

    Its open transaction is aborted if that is possible at once, otherwise by the next producer with its id.
    """
    await close_client(_discard(producer))


async def _discard(producer: AIOKafkaProducer) -> None:
    if producer._txn_manager.is_in_transaction():  # noqa: SLF001 -- aiokafka has no public method for it
        await _try(producer.abort_transaction())
    if await _try(producer.stop()):
        return
    # stop() waits until records are sent, for ever if the brokers are down.
    sender = producer._sender.sender_task  # noqa: SLF001 -- nor a public way to give up
    producer._message_accumulator.fail_all(KafkaError("the producer was given up"))  # noqa: SLF001
    if sender is not None and not await _cancelled(sender):
        _LOG.warning("the sender of a Kafka producer did not end within %g s of its cancellation", _CANCELS * _CANCEL_S)
    await _try(producer.client.close())


async def _cancelled(sender: asyncio.Task[None]) -> bool:
    """Cancel a producer's sender, which shields what it has in flight at first; return whether it has ended."""
    for _ in range(_CANCELS):
        sender.cancel()
        if (await asyncio.wait([sender], timeout=_CANCEL_S))[0]:
            return True
    return False


async def _try(action: Awaitable[None]) -> bool:
    try:
        await asyncio.wait_for(action, _STOP_S)
    except (*KAFKA_ERRORS, TimeoutError, OSError) as error:
        _LOG.debug("an old producer was abandoned: %r", error)
        return False
    return True


class BatchTooLargeError(Exception):
    """The brokers refused a batch of several records because of its size; smaller ones may be accepted."""


@dataclass
class _OpenBatch:
    builder: BatchBuilder
    first_seq: int = 0
    last_seq: int = 0
    used_bytes: int = 0


class BatchWriter:
    """Sends the records of one transaction, in order within each partition, with limited bytes in flight.

    Args:
        producer: in a transaction.
        topic: the target.
        partitions: its partitions, ascending.
        partitioner: chooses one of them.
        batch_bytes: a batch is sent at this size; at most ``BATCH_BYTES``.
        on_confirmed: called whenever the brokers have confirmed a batch.
    """

    def __init__(
        self,
        producer: AIOKafkaProducer,
        topic: str,
        partitions: list[int],
        partitioner: Partitioner,
        batch_bytes: int,
        on_confirmed: Callable[[], None],
    ) -> None:
        self._producer = producer
        self._topic = topic
        self._partitions = partitions
        self._partitioner = partitioner
        self._batch_bytes = batch_bytes
        self._on_confirmed = on_confirmed
        self._open: dict[int, _OpenBatch] = {}
        self._sent: deque[tuple[_OpenBatch, asyncio.Future[Any]]] = deque()
        self._held_bytes = 0

    async def add(self, records: Iterable[KafkaRecord], release: ReleasedRows) -> None:
        """Add the records of a release to batches.

        Raises:
            SinkError: the brokers refuse a record of that size; BatchTooLargeError: or a batch.
            KafkaError: they refuse it for another reason.
        """
        for record in records:
            size_bytes = _size(record)
            partition = self._partitioner.choose(record.key, self._partitions)
            batch = self._open.get(partition)
            if batch is None or batch.used_bytes + size_bytes > self._batch_bytes:
                batch = await self._renewed(partition, release)
            appended = batch.builder.append(timestamp=None, key=record.key, value=record.value, headers=record.headers)
            assert appended is not None, "a batch of the producer is larger than those that are sent"
            batch.last_seq = max(batch.last_seq, release.last_seq)
            batch.used_bytes += size_bytes
            self._held_bytes += size_bytes
            if self._held_bytes > _IN_FLIGHT_BYTES_MAX:
                await self._relieve(_IN_FLIGHT_BYTES_MAX)

    async def _renewed(self, partition: int, release: ReleasedRows) -> _OpenBatch:
        """Send the open batch of a partition, if there is one; return a new one that begins with this release."""
        if partition in self._open:
            await self._send(partition)
        self._open[partition] = batch = _OpenBatch(self._producer.create_batch(), first_seq=release.first_seq)
        return batch

    async def finish(self) -> None:
        """Send the rest, and wait until the brokers have confirmed everything.

        Raises:
            SinkError, BatchTooLargeError or KafkaError: as for ``add``.
        """
        for partition in list(self._open):
            await self._send(partition)
        self._partitioner.turn()
        await self._relieve(0)

    async def _relieve(self, max_bytes: int) -> None:
        """Wait until at most ``max_bytes`` are held."""
        if self._held_bytes > max_bytes:
            for partition in list(self._open):
                await self._send(partition)
        while self._held_bytes > max_bytes:
            batch, done = self._sent.popleft()
            self._held_bytes -= batch.used_bytes
            await self._confirm(batch, done)

    async def _send(self, partition: int) -> None:
        batch = self._open.pop(partition)
        batch.builder.close()
        done = await self._producer.send_batch(batch.builder, self._topic, partition=partition)
        # Only the first failure is reported; the others must not be logged as never retrieved.
        done.add_done_callback(lambda future: future.cancelled() or future.exception())
        self._sent.append((batch, done))

    async def _confirm(self, batch: _OpenBatch, done: asyncio.Future[Any]) -> None:
        try:
            await done
        except (MessageSizeTooLargeError, RecordListTooLargeError) as error:
            if batch.builder.record_count() > 1:
                raise BatchTooLargeError from error
            raise SinkError(
                f"a result of the events {batch.first_seq} to {batch.last_seq} is too large for the topic "
                f"{self._topic} ({batch.used_bytes} bytes): raise its max.message.bytes, or select less"
            ) from error
        self._on_confirmed()


def _size(record: KafkaRecord) -> int:
    """Return the largest size of a record in a batch."""
    size_bytes = len(record.value) + len(record.key or b"") + _RECORD_OVERHEAD_BYTES
    if record.headers:
        size_bytes += sum(len(name.encode()) + len(text) + 10 for name, text in record.headers)
    return size_bytes
