"""Where the partitions of a group begin."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import CommitFailedError

from infra.clock import Clock
from infra.kafka.fetched import gone
from infra.retries import Retries
from infra.rows.base import SourceError

_LOG = logging.getLogger(__name__)
# A partition that has a new leader may for a moment not know its own end.
_ENDS: Final = Retries(first_s=0.1, most_s=0.4, tries=9)


async def begin_at_end(settings: Mapping[str, Any], group: str, partitions: Sequence[TopicPartition]) -> None:
    """Commit the topics' ends, so that a crash before a member's first commit skips nothing.

    While the group has members brokers refuse this: the members have decided already where it begins.

    Args:
        settings: how to reach the brokers.
        group: the consumer group; nothing is changed if it has committed anything.
        partitions: of the topics.

    Raises:
        KafkaError: the brokers do not answer.
    """
    consumer = AIOKafkaConsumer(**settings, group_id=group, enable_auto_commit=False)
    try:
        consumer.assign(partitions)
        await consumer.start()
        if any([await consumer.committed(partition) is not None for partition in partitions]):
            return
        await consumer.commit(await consumer.end_offsets(partitions))
    except CommitFailedError as error:
        _LOG.info("group %s already has members, so its offsets are not set here: %r", group, error)
    finally:
        await consumer.stop()


async def starts_of(
    consumer: AIOKafkaConsumer, assigned: Sequence[TopicPartition], wanted: Mapping[TopicPartition, int], clock: Clock
) -> dict[TopicPartition, int]:
    """Return where partitions begin: at the wanted offset, or at their first record.

    Raises:
        SourceError: a partition lacks the wanted record.
        KafkaError: the brokers do not answer.
    """

    async def starts() -> dict[TopicPartition, int]:
        first = await consumer.beginning_offsets(assigned)
        end = await consumer.end_offsets(assigned)
        lost = {each: offset for each, offset in wanted.items() if not first[each] <= offset <= end[each]}
        if lost:
            raise gone(lost)
        return {each: wanted.get(each, first[each]) for each in assigned}

    return await _ENDS.retry(starts, clock, SourceError)
