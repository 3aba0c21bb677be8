"""How the gateway's Kafka clients connect to their brokers."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Protocol

from gateway.config.connectors.kafka import KafkaSinkConfig, KafkaSourceConfig, same_brokers
from gateway.config.connectors.sinks import SinkConfig
from gateway.connectors.tlsfiles import client_context
from infra.together import wait_out

_CONNECT_S = 3.0


def client_settings(config: KafkaSourceConfig | KafkaSinkConfig) -> dict[str, Any]:
    """Return the arguments for every aiokafka client: brokers, TLS and login.

    Raises:
        BadTlsFilesError: a file of ``tls`` cannot be used.
    """
    settings: dict[str, Any] = {"bootstrap_servers": config.brokers.split(","), "client_id": "spillway"}
    tls, sasl = config.tls, config.sasl
    if tls is not None:
        settings["ssl_context"] = client_context(tls)
    if sasl is not None:
        settings["sasl_mechanism"] = sasl.mechanism
        settings["sasl_plain_username"] = sasl.user
        settings["sasl_plain_password"] = sasl.password.get_secret_value()
    transport = "SSL" if tls is not None else "PLAINTEXT"
    settings["security_protocol"] = f"SASL_{transport}" if sasl is not None else transport
    return settings


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
