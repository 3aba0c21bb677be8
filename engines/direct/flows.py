"""What Spark reads and writes when it carries a query from Kafka to Kafka by itself."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from engines.direct import byjvm
from engines.direct.kafkaoptions import options
from engines.query.known import KnownQuery, RefusedError
from engines.spark.session import sibling
from infra.messages import DirectFlow, KafkaReading

_CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


class Flows:
    """The flows that a host has planned and not started yet: that takes a part of a second, in which results pause."""

    def __init__(self) -> None:
        self._planned: dict[str, tuple[DirectFlow, DataFrame]] = {}

    def plan(self, query: KnownQuery) -> None:
        """Plan a flow that ``take`` is soon asked for, in place of the query's last one.

        Raises:
            RefusedError: Spark cannot run it by itself; the message says why.
        """
        assert query.spec.direct is not None
        self._planned[query.spec.query] = query.spec.direct, _records(query, query.spec.direct)

    def take(self, query: KnownQuery) -> DataFrame:
        """Return the records of a query's results, for Spark's Kafka sink.

        Raises:
            RefusedError: as ``plan`` does.
        """
        assert query.spec.direct is not None
        flow, records = self._planned.pop(query.spec.query, (None, None))
        return records if records is not None and flow == query.spec.direct else _records(query, query.spec.direct)


def _records(query: KnownQuery, flow: DirectFlow) -> DataFrame:
    reading = query.spec.reads
    assert isinstance(reading, KafkaReading)
    if refusal := _why_not(query, reading, flow):
        raise RefusedError(f"query {query.spec.query}: {refusal}")
    starts: dict[str, dict[str, int]] = {}
    for each in flow.starts:
        starts.setdefault(each.topic, {})[str(each.partition)] = each.offset
    reader = sibling(query.base).readStream.format("kafka").options(**options(reading.access))
    assigned = {topic: [int(partition) for partition in places] for topic, places in starts.items()}
    reader = reader.option("assign", json.dumps(assigned)).option("startingOffsets", json.dumps(starts))
    records = reader.option("kafka.isolation.level", "read_committed").load()
    results = query.build(byjvm.events_of(records, query.columns))
    return byjvm.records_of(results, flow.key, dict(flow.headers))


def _why_not(query: KnownQuery, reading: KafkaReading, flow: DirectFlow) -> str:
    """Return why Spark cannot carry a query from Kafka to Kafka by itself; empty if it can."""
    if not (query.plan.narrow and query.plan.switchable):
        return query.plan.reason or "its plan moves rows between partitions"
    if not _has_connector(query.base):
        return (
            "Spark lacks its Kafka connector: set spark.jars.packages in private.spark.conf to "
            "org.apache.spark:spark-sql-kafka-0-10_2.13, in Spark's version"
        )
    texts = {f"headers.{name}": column for name, column in flow.headers} | ({"key": flow.key} if flow.key else {})
    return byjvm.why_not(query.columns, from_arrow_schema(query.result_schema), reading.format, texts)


def _has_connector(session: SparkSession) -> bool:
    jvm: Any = session.sparkContext._jvm  # noqa: SLF001 - classes are nowhere in the public API
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(_CONNECTOR)
    except Exception:
        return False
    return True
