"""Patterns as queries over events with a number, a kind, a value and a time."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import SparkSession

from engines.query.known import KnownQuery, understand
from infra.messages import OpenQuery, Pattern, PatternStep, SelectionRule
from tests.selections.patternoracle import Case

SCHEMA = pa.schema(
    [("n", pa.int64()), ("kind", pa.string()), ("v", pa.float64()), ("at", pa.timestamp("us", tz="UTC"))]
)
DDL = "n BIGINT, kind STRING, v DOUBLE, at TIMESTAMP"


def rule_of(case: Case) -> SelectionRule:
    steps = tuple(PatternStep(name=s.name, when=s.sql, times=s.times, for_ms=s.for_ms) for s in case.steps)  # type: ignore[arg-type]
    return SelectionRule(
        column="at" if case.within_ms else "",
        each_ms=0,
        each_events=0,
        after_ms=case.lasts_ms,
        events=1 if case.operator == "disjunction" else case.events,
        most_events=1_000_000,
        most_open=1_000_000,
        disjoint=case.restricted,
        pattern=Pattern(operator=case.operator, steps=steps, every_ms=case.every_ms, within_ms=case.within_ms),  # type: ignore[arg-type]
    )


def known(spark: SparkSession, rule: SelectionRule, sql: str = "SELECT * FROM matches") -> KnownQuery:
    return understand(spark, OpenQuery(query="q", epoch=0, schema_ddl=DDL, sql=sql, selections=rule))
