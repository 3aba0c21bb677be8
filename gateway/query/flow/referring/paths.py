"""Which way the events of a query take at home: through the gateway, or from Kafka to executors."""

from __future__ import annotations

import logging

from gateway.config.models import KafkaSourceConfig, QueryConfig
from infra.messages import KafkaReading

_LOG = logging.getLogger(__name__)


def why_by_value(config: QueryConfig) -> str:
    """Return why the runs of a query cannot come by reference, as far as its config tells; empty if they can."""
    source = config.source
    if not isinstance(source, KafkaSourceConfig):
        return "its source is not one Kafka topic or several"
    if source.tls is not None or source.sasl is not None:
        return "its brokers need TLS or a login, whose secrets would have to be on every executor"
    if config.streams:
        return "it has several sources"
    if config.selection_rule is not None:
        return "it has selections"
    if config.order is not None and config.order.by != "arrival":
        return "its results are ordered by a column, which the gateway reads"
    if config.part is not None:
        return "it is divided by key"
    return ""


def reading_of(config: QueryConfig) -> KafkaReading | None:
    """Return how hosts read the events of a query; None if its runs must have them.

    Raises:
        SourceError: the file of the Avro schema cannot be read.
    """
    source = config.source
    if why_by_value(config) or not isinstance(source, KafkaSourceConfig):
        return None
    from gateway.sources.kafka.formats import record_format  # with Kafka's client

    return KafkaReading(brokers=source.brokers, format=record_format(source, strict=config.drift == "strict"))


def log_path(name: str, config: QueryConfig, *, by_reference: bool) -> None:
    """Log which way the events of a query take at home."""
    if by_reference:
        _LOG.info("query %s: Spark's executors read the events that stay at home", name)
    else:
        why = why_by_value(config) or "its plan is not narrow, or executors lack Spillway with Kafka's client"
        _LOG.info("query %s: all its events pass through the gateway: %s", name, why)
