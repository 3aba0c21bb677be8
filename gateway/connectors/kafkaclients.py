"""How the gateway's Kafka clients connect to their brokers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from gateway.config.connectors.kafka import KafkaSinkConfig, KafkaSourceConfig, same_brokers
from gateway.config.connectors.sinks import SinkConfig
from infra.kafka import clients
from infra.messages import BrokerAccess
from infra.together import wait_out

_CONNECT_S = 3.0


def access_of(config: KafkaSourceConfig | KafkaSinkConfig) -> BrokerAccess:
    """Return how the brokers of a source or a sink are reached."""
    tls, sasl = config.tls, config.sasl
    ca, certificate, key = ("", "", "") if tls is None else tls.files
    return BrokerAccess(
        brokers=config.brokers,
        tls=tls is not None,
        ca=ca,
        certificate=certificate,
        key=key,
        mechanism="" if sasl is None else sasl.mechanism,
        user="" if sasl is None else sasl.user,
        password="" if sasl is None else sasl.password.get_secret_value(),
    )


def client_settings(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, Any]:
    """Return the arguments for every aiokafka client of a source or a sink.

    Raises:
        BadTlsFilesError: a file of ``tls`` cannot be used.
    """
    return clients.client_settings(access_of(config))


class KafkaClient(Protocol):
    """Any client of aiokafka."""

    async def start(self) -> None:
        """Connect."""
        ...


async def start_client(client: KafkaClient) -> None:
    """Start a client; a caller that is cancelled meanwhile waits a moment for the end.

    When aiokafka is cancelled during the request for the brokers' names, it leaks that connection.
    """
    await wait_out(client.start(), _CONNECT_S)


async def close_client(closing: Coroutine[Any, Any, None]) -> None:
    """Close a client; a caller that is cancelled meanwhile waits, otherwise its connections would stay open.

    Args:
        closing: closes it, within seconds.
    """
    await wait_out(closing)


def group_of(source: KafkaSourceConfig, query: str) -> str:
    """Return the consumer group that a source is a member of."""
    return source.group or f"spillway-{query}"


def shared_group(source: object, sink: SinkConfig, query: str) -> str | None:
    """Return the source's group if the sink's transactions can move its offsets: both are on the same brokers."""
    if not isinstance(source, KafkaSourceConfig) or not isinstance(sink, KafkaSinkConfig):
        return None
    return group_of(source, query) if same_brokers(source, sink) else None
