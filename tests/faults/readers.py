"""Independent readers of the results: they know nothing of the gateway."""

from __future__ import annotations

import asyncio
import json
from io import BytesIO
from typing import Any

from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from tests.connectors.s3_reader import part_names, read_results

READ_S = 60.0


def topic_rows(brokers: str, topic: str) -> list[dict[str, Any]]:
    """Read what transactions have committed to a topic of one partition, in its order."""
    return asyncio.run(_topic_rows(brokers, topic))


async def _topic_rows(brokers: str, topic: str) -> list[dict[str, Any]]:
    consumer = AIOKafkaConsumer(bootstrap_servers=brokers, isolation_level="read_committed", enable_auto_commit=False)
    await consumer.start()
    rows: list[dict[str, Any]] = []
    try:
        place = TopicPartition(topic, 0)
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        # With read_committed the end is that of the last transaction that is settled.
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            for records in (await consumer.getmany(timeout_ms=1000)).values():
                rows += [json.loads(record.value or b"") for record in records]
    finally:
        await consumer.stop()
    return rows


class TopicReader:
    """Reads the results in a topic of one partition over and over, fetching each record once."""

    def __init__(self, brokers: str, topic: str) -> None:
        self._brokers = brokers
        self._place = TopicPartition(topic, 0)
        self._rows: list[dict[str, Any]] = []
        self._runner = asyncio.Runner()
        self._consumer = self._runner.run(self._opened("read_committed"))

    def rows(self) -> list[dict[str, Any]]:
        """Return what transactions have committed up to now, in its order."""
        self._runner.run(self._read())
        return self._rows

    def progress(self) -> object:
        """Return something that changes when there are more rows."""
        return len(self.rows())

    def end(self) -> int:
        """Return the offset after the last record, be it committed or not."""
        return self._runner.run(self._end())

    def offsets(self, begin: int, end: int, isolation: str) -> list[int]:
        """Return the offsets of the records in [begin, end); with read_committed, once it is known which those are."""
        return self._runner.run(self._offsets(begin, end, isolation))

    def close(self) -> None:
        """Close the connection."""
        try:
            self._runner.run(self._consumer.stop())
        except asyncio.CancelledError as cancelled:
            # After a fixture that ends with a CancelledError, pytest tears down no other, and reuses its tmp_path.
            raise AssertionError(f"the reader of {self._place.topic} was cancelled while it stopped") from cancelled
        finally:
            self._runner.close()

    async def _opened(self, isolation: str, begin: int = 0) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._brokers, isolation_level=isolation, enable_auto_commit=False
        )
        await consumer.start()
        consumer.assign([self._place])
        consumer.seek(self._place, begin)
        return consumer

    async def _read(self) -> None:
        # With read_committed the end is that of the last transaction that is settled.
        end = (await self._consumer.end_offsets([self._place]))[self._place]
        found = await self._read_up_to(self._consumer, end)
        self._rows += [json.loads(record.value or b"") for record in found]

    async def _read_up_to(self, consumer: AIOKafkaConsumer, end: int) -> list[ConsumerRecord]:
        found: list[ConsumerRecord] = []
        async with asyncio.timeout(READ_S):
            while await consumer.position(self._place) < end:
                found += (await consumer.getmany(self._place, timeout_ms=1000)).get(self._place, [])
        return found

    async def _end(self) -> int:
        consumer = await self._opened("read_uncommitted")
        try:
            return int((await consumer.end_offsets([self._place]))[self._place])
        finally:
            await consumer.stop()

    async def _offsets(self, begin: int, end: int, isolation: str) -> list[int]:
        if begin == end:
            return []  # aiokafka's consumer cannot be stopped right after its start
        consumer = await self._opened(isolation, begin)
        try:
            return [record.offset for record in await self._read_up_to(consumer, end) if record.offset < end]
        finally:
            await consumer.stop()


class BucketReader:
    """Reads the results of an S3 sink over and over with only boto3; parts and pages never change: each is got once."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix
        self._kept: dict[str, bytes] = {}

    def rows(self) -> list[dict[str, Any]]:
        """Return the visible results, in their order."""
        return read_results(self, self._bucket, self._prefix)

    def parts(self) -> list[str]:
        """Return the names of the visible parts, in their order."""
        return part_names(self, self._bucket, self._prefix)

    def progress(self) -> object:
        """Return something that changes when there are more rows."""
        return self.parts()[-1:]

    def list_objects_v2(self, **asked: str) -> Any:
        """See boto3."""
        return self._client.list_objects_v2(**asked)

    def get_object(self, Bucket: str, Key: str) -> dict[str, BytesIO]:  # noqa: N803 -- boto3's names
        """See boto3."""
        data = self._kept.get(Key)
        if data is None:
            data = self._client.get_object(Bucket=Bucket, Key=Key)["Body"].read()
            if "/manifest/" not in Key:
                self._kept[Key] = data
        return {"Body": BytesIO(data)}
