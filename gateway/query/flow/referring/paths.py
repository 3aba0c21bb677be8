"""Which way the events of a query take at home, and why: through the gateway, or from their source to executors."""

from __future__ import annotations

import logging
from typing import Final, Literal, NamedTuple

import pyarrow as pa

from engines.spark.sparkconf import is_local
from gateway.config.connectors.kafka import same_brokers
from gateway.config.models import (
    FileSourceConfig,
    KafkaSinkConfig,
    KafkaSourceConfig,
    PrivateConfig,
    QueryConfig,
    S3SourceConfig,
)
from gateway.config.sites import SparkConfig
from gateway.query.flow.referring.cutting import why_not_cut
from gateway.sources.files.filesource import file_reading
from infra.messages import NAME_TOPIC, KafkaReading, QueryPlan, QueryReady, Reading

_LOG = logging.getLogger(__name__)
PathName = Literal["gateway", "reference", "direct"]
_NOT_ASKED: Final = "private.data_path says so"
_NOT_THERE: Final = "executors lack Spillway with Kafka's client (pip install spillway[kafka]), or the files of tls"
_NO_OBJECTS: Final = "executors lack Spillway with S3's client (pip install spillway[s3]), or access to the bucket"
_NO_FILES: Final = "executors lack Spillway, or do not find the files at the same path"
_ONE_MACHINE: Final = "with a local master, auto leaves files to the gateway"
_NOT_NAMED: Final = "its plan does not tell of which event a result is"
_ENCRYPTED: Final = ("spark.network.crypto.enabled", "spark.ssl.rpc.enabled")
"""Settings of Spark, one of which keeps secret what executors are told."""


class DataPath(NamedTuple):
    """Who reads the events of a query that stay at home.

    Attributes:
        name: as ``private.data_path`` calls it.
        why: why it is not what ``private.data_path`` says; empty otherwise.
    """

    name: PathName
    why: str = ""

    def __str__(self) -> str:
        """Return it in words."""
        if self.name == "reference":
            return "reference: Spark's executors read the events that stay at home"
        if self.name == "direct":
            return "direct: Spark reads the events and writes the results, while that keeps the target"
        return f"gateway: all events pass through the gateway: {self.why}"


def asked(private: PrivateConfig, config: QueryConfig) -> PathName:
    """Return which path ``private.data_path`` asks for; of ``auto`` the best one that the query's config allows."""
    if private.data_path != "auto":
        return private.data_path
    if not why_not_direct(config, private.spark):
        return "direct"
    return "gateway" if _why_not_chosen(config, private.spark) else "reference"


def data_path(private: PrivateConfig, config: QueryConfig, ready: QueryReady) -> DataPath:
    """Return the path of a query that is open at home.

    Args:
        private: the private side.
        config: the query's config.
        ready: the host's answer.
    """
    if asked(private, config) == "direct":
        named = NAME_TOPIC in pa.ipc.read_schema(pa.py_buffer(ready.result_schema)).names
        return path_of(private, config, ready.plan, named=named)
    return path_of(private, config, ready.plan, can_read=ready.by_reference)


def path_of(
    private: PrivateConfig, config: QueryConfig, plan: QueryPlan, *, can_read: bool = True, named: bool = True
) -> DataPath:
    """Return the path of a query.

    Args:
        private: the private side.
        config: the query's config.
        plan: the query's.
        can_read: whether executors have what reading needs.
        named: whether its plan tells of which event a result is.
    """
    name = asked(private, config)
    if name == "gateway":
        why = _NOT_ASKED if private.data_path == "gateway" else _why_not_chosen(config, private.spark)
        return DataPath("gateway", why)
    if name == "direct":
        why = why_not_direct(config, private.spark) or why_not_of_plan(plan) or ("" if named else _NOT_NAMED)
        return DataPath("gateway", why) if why else DataPath("direct")
    why = why_by_value(config, private.spark) or why_not_of_plan(plan) or ("" if can_read else why_not_there(config))
    return DataPath("gateway", why) if why else DataPath("reference")


def why_not_there(config: QueryConfig) -> str:
    """Return what executors lack that cannot read the events of a query."""
    if isinstance(config.source, S3SourceConfig):
        return _NO_OBJECTS
    return _NOT_THERE if isinstance(config.source, KafkaSourceConfig) else _NO_FILES


def needs_of(config: QueryConfig) -> str:
    """Return what each executor of a cluster must have that is to read the events of a query."""
    if isinstance(config.source, FileSourceConfig):
        return "Spillway in this version, and the files at the same path"
    if isinstance(config.source, S3SourceConfig):
        return "Spillway with S3's client, in this version, and credentials of its own for the bucket"
    return "Spillway with Kafka's client, in this version"


def why_by_value(config: QueryConfig, spark: SparkConfig) -> str:
    """Return why the runs of a query cannot come by reference, as far as its config tells; empty if they can."""
    if why := _why_not_source(config, spark):
        return why
    if config.streams:
        return "it has several sources"
    if config.selection_rule is not None:
        return "it has selections"
    if config.order is not None and config.order.by != "arrival":
        return "its results are ordered by a column, which the gateway reads"
    if config.part is not None:
        return "it is divided by key"
    return ""


def _why_not_chosen(config: QueryConfig, spark: SparkConfig) -> str:
    """Return why ``auto`` does not choose runs by reference; empty if it does."""
    if why := why_by_value(config, spark):
        return why
    return _ONE_MACHINE if is_local(spark.master) and not isinstance(config.source, KafkaSourceConfig) else ""


def _why_not_source(config: QueryConfig, spark: SparkConfig) -> str:
    source = config.source
    if isinstance(source, FileSourceConfig):
        return why_not_cut(source)
    if isinstance(source, S3SourceConfig):
        return ""
    if not isinstance(source, KafkaSourceConfig):
        return "its source is neither Kafka, nor files, nor S3"
    if source.sasl is not None and not _keeps_secrets(spark):
        return (
            "its brokers need a login, whose password executors would be told without encryption: set "
            "spark.network.crypto.enabled in private.spark.conf"
        )
    return ""


def why_not_direct(config: QueryConfig, spark: SparkConfig) -> str:
    """Return why Spark cannot carry a query by itself, as far as its config tells; empty if it can."""
    source, sink = config.source, config.sink
    if config.delivery == "exactly_once":
        return "delivery: exactly_once does not allow direct, whose results may come twice if home dies"
    if why := why_by_value(config, spark):
        return why
    if not isinstance(source, KafkaSourceConfig):
        return "its source is not one Kafka topic or several"
    if not isinstance(sink, KafkaSinkConfig) or not same_brokers(source, sink):
        return "its sink is not a topic of the same brokers"
    if source.format != "json" or config.drift == "strict":
        return "its records are not JSON with drift: lenient"
    if config.tables:
        return "it reads tables"
    return ""


def names_events(config: QueryConfig, private: PrivateConfig, *, was_carried: bool) -> bool:
    """Return whether results are to name their events: Spark may carry the query by itself, or has done so before."""
    may_be = asked(private, config) == "direct" and not why_not_direct(config, private.spark)
    return may_be or (was_carried and isinstance(config.sink, KafkaSinkConfig))


def why_not_of_plan(plan: QueryPlan) -> str:
    """Return why the runs of a query cannot come by reference, as far as its plan tells; empty if they can."""
    if not plan.switchable:
        return plan.reason
    return "" if plan.narrow else "its plan moves rows between partitions"


def _keeps_secrets(spark: SparkConfig) -> bool:
    return is_local(spark.master) or any(spark.conf.get(name, "").lower() == "true" for name in _ENCRYPTED)


def reading_of(config: QueryConfig, private: PrivateConfig) -> Reading | None:
    """Return how hosts read the events of a query; None if its runs must have them.

    Raises:
        SourceError: the file of the Avro schema cannot be read.
    """
    source = config.source
    if private.data_path == "gateway" or why_by_value(config, private.spark):
        return None
    if isinstance(source, FileSourceConfig | S3SourceConfig):
        return file_reading(source, strict=config.drift == "strict")
    assert isinstance(source, KafkaSourceConfig)
    from gateway.connectors.kafkaclients import access_of  # with Kafka's client
    from gateway.sources.kafka.formats import record_format

    return KafkaReading(access=access_of(source), format=record_format(source, strict=config.drift == "strict"))


def log_path(name: str, path: DataPath) -> None:
    """Log which way the events of a query take at home, if that is not the default."""
    if path.why != _NOT_ASKED:
        _LOG.info("query %s: data path %s", name, path)
