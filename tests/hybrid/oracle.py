"""What a batch over the same events returns, for queries whose results do not depend on when they are computed."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from engines.query import schemas
from engines.spark.session import sibling
from gateway.sinks.rows import json_lines
from infra.rows.jsonlines import LineDecoder
from tests.hybrid.cases import DDL, StreamCase
from tests.hybrid.events import SHOPS, SHOPS_DDL, Event, counted
from tests.hybrid.site import USER


def batch_answer(spark: SparkSession, case: StreamCase, events: Iterable[Event]) -> Counter[str]:
    """Return the rows of a query over a batch of those events that count, each as text, with how often it comes."""
    session = sibling(spark)
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.adaptive.enabled", "false")
    columns = schemas.struct_of(session, DDL)
    lines = [json.dumps(event).encode() for event in counted(events, case.oracle)]
    batch, dead = LineDecoder(schemas.arrow_of(columns)).decode(lines)
    assert not dead, dead
    frame = session.createDataFrame(pa.Table.from_batches([batch]), columns).coalesce(1)
    found = _built(case, frame).toArrow()
    rows = (json.loads(line) for each in found.to_batches() for line in json_lines(each).splitlines())
    return Counter(json.dumps(row, sort_keys=True) for row in rows)


def _built(case: StreamCase, events: DataFrame) -> DataFrame:
    if case.function:
        module, name = case.function.split(":")
        frame: DataFrame = getattr(_user_module(module), name)(events)
        return frame
    session = events.sparkSession
    rows = [line.split(",") for line in SHOPS.splitlines()[1:]]
    session.createDataFrame([(int(shop), label) for shop, label in rows], SHOPS_DDL).createOrReplaceTempView("shops")
    events.createOrReplaceTempView("events")
    return session.sql(case.sql)


def _user_module(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, Path(USER) / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
