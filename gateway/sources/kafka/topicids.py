"""The ids of a cluster and its topics: a topic that was deleted and created again has the same name, but a new id.

aiokafka's own metadata requests end at version 5; ids of topics (KIP-516) come with version 10.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import IncompatibleBrokerVersion, UnknownTopicOrPartitionError, for_code
from aiokafka.protocol.api import Request, RequestStruct, Response
from aiokafka.protocol.types import (
    Boolean,
    CompactArray,
    CompactString,
    Int16,
    Int32,
    Schema,
    TaggedFields,
)

from gateway.connectors.kafkaclients import close_client, start_client
from gateway.sources.kafka.partitions import no_topic

_NO_ID: Final = UUID(int=0)


@dataclass(frozen=True, slots=True)
class Topics:
    """The id of a cluster, and of topics by name; empty if the brokers have none."""

    cluster: str
    ids: dict[str, str]


class _Uuid:
    """Sixteen raw bytes."""

    @staticmethod
    def encode(value: bytes) -> bytes:
        return value

    @staticmethod
    def decode(data: io.BytesIO) -> bytes:
        return data.read(16)

    @staticmethod
    def repr(value: bytes) -> str:
        return str(UUID(bytes=value))


class _Response(Response):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 3
    API_VERSION = 10
    SCHEMA = Schema(
        ("throttle_time_ms", Int32),
        (
            "brokers",
            CompactArray(
                ("node_id", Int32),
                ("host", CompactString("utf-8")),
                ("port", Int32),
                ("rack", CompactString("utf-8")),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_id", CompactString("utf-8")),
        ("controller_id", Int32),
        (
            "topics",
            CompactArray(
                ("error_code", Int16),
                ("name", CompactString("utf-8")),
                ("topic_id", _Uuid),
                ("is_internal", Boolean),
                (
                    "partitions",
                    CompactArray(
                        ("error_code", Int16),
                        ("partition", Int32),
                        ("leader", Int32),
                        ("leader_epoch", Int32),
                        ("replicas", CompactArray(Int32)),
                        ("in_sync", CompactArray(Int32)),
                        ("offline", CompactArray(Int32)),
                        ("tags", TaggedFields),
                    ),
                ),
                ("authorized_operations", Int32),
                ("tags", TaggedFields),
            ),
        ),
        ("cluster_authorized_operations", Int32),
        ("tags", TaggedFields),
    )


class IdsRequest(RequestStruct):  # type: ignore[misc]  # aiokafka has no types
    """A request for metadata that is answered with the ids of topics."""

    API_KEY = 3
    API_VERSION = 10
    FLEXIBLE_VERSION = True
    RESPONSE_TYPE = _Response
    SCHEMA = Schema(
        (
            "topics",
            CompactArray(("topic_id", _Uuid), ("name", CompactString("utf-8")), ("tags", TaggedFields)),
        ),
        ("allow_auto_topic_creation", Boolean),
        ("include_cluster_authorized_operations", Boolean),
        ("include_topic_authorized_operations", Boolean),
        ("tags", TaggedFields),
    )


class _Request(Request[IdsRequest]):  # type: ignore[misc]  # aiokafka has no types
    API_KEY = 3

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics

    def build(self, request_struct_class: type[IdsRequest]) -> IdsRequest:
        return request_struct_class([(_NO_ID.bytes, topic, {}) for topic in self._topics], False, False, False, {})


async def topics_of(settings: Mapping[str, Any], topics: Sequence[str]) -> Topics:
    """Ask the brokers for the ids of their cluster and of topics.

    Raises:
        SourceError: a topic does not exist.
        KafkaError: the brokers do not answer.
    """
    admin = AIOKafkaAdminClient(**settings)
    try:
        await start_client(admin)
        try:
            answer = await admin._send_request(_Request(topics))  # noqa: SLF001 -- the only way to send one of our own
        except (RuntimeError, IncompatibleBrokerVersion):
            # Brokers before Kafka 2.8: aiokafka finds no common version of the request.
            found = await admin.describe_cluster()
            return Topics(str(found["cluster_id"] or ""), dict.fromkeys(topics, ""))
    finally:
        await close_client(admin.close())
    ids = {}
    for code, name, number, *_ in answer.topics:
        if for_code(code) is UnknownTopicOrPartitionError:
            raise no_topic(name, settings)
        if code:
            raise for_code(code)(name)
        ids[name] = "" if number == _NO_ID.bytes else str(UUID(bytes=number))
    return Topics(str(answer.cluster_id or ""), ids)
