"""The columns that are found in data, and their DDL."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from engines.query.schemas import arrow_of, struct_of
from gateway.config.sections import extras
from gateway.views.firstconfig.columntypes import ddl_of, written_as
from gateway.views.firstconfig.inferring import InferError, infer_file, infer_json
from gateway.views.firstconfig.sampled import infer
from tests.connectors.kafka_broker import Broker
from tests.connectors.kafka_topics import sent
from tests.tryout.try_config import put


def lines(*objects: Any) -> list[bytes]:
    return [json.dumps(each).encode() for each in objects]


@pytest.mark.parametrize(
    ("objects", "ddl"),
    [
        ([{"n": 1}, {"n": 2}], "n BIGINT"),
        ([{"n": 1}, {"n": 2.5}], "n DOUBLE"),
        ([{"n": None}, {"n": True}], "n BOOLEAN"),
        ([{"n": None}], "n STRING"),
        ([{"a": "x"}, {"b": 1}], "a STRING, b BIGINT"),
        ([{"at": "2026-01-01T10:00:00Z"}, {"at": "2026-01-01 10:00:00.25"}], "at TIMESTAMP"),
        ([{"at": "2026-01-01T10:00:00+02:00"}, {"at": None}], "at TIMESTAMP"),
        ([{"at": "2026-01-01T10:00:00Z"}, {"at": "yesterday"}], "at STRING"),
        ([{"at": "2026-13-01T10:00:00Z"}], "at STRING"),
        ([{"day": "2026-01-31"}], "day DATE"),
        ([{"day": "2026-02-31"}], "day STRING"),
        (
            [{"who": {"name": "x", "at": "2026-01-01"}, "tags": [1, 2.5]}],
            "who STRUCT<name: STRING, at: STRING>, tags ARRAY<DOUBLE>",
        ),
        ([{"who": {"a": 1}}, {"who": {"b c": 2}}], "who STRUCT<a: BIGINT, `b c`: BIGINT>"),
        ([{"a`b": 1, "größe": 2}], "`a``b` BIGINT, `größe` BIGINT"),
    ],
)
def test_columns_of_json(objects: list[Any], ddl: str) -> None:
    found = infer_json(lines(*objects))
    assert (found.ddl, found.records, found.unfit) == (ddl, len(objects), 0)


def test_where_records_contradict_each_other_the_earlier_ones_count_and_the_others_are_counted() -> None:
    found = infer_json([*lines({"n": 1}, {"n": "x"}, {"n": 2, "m": 1}), b"nope", b"[1]", b"", *lines({"n": "y"})])
    assert (found.ddl, found.records, found.unfit) == ("n BIGINT, m BIGINT", 6, 4)
    assert "number to string" in found.reason


@pytest.mark.parametrize("data", [[], [b""], [b"nope", b"1"], [b"{}"]])
def test_data_without_columns_are_refused(data: list[bytes]) -> None:
    with pytest.raises(InferError, match="is a JSON object with fields"):
        infer_json(data)


def test_columns_of_csv(tmp_path: Path) -> None:
    rows = [
        "id,at,day,amount,mixed,flag,empty",
        "1,2026-01-01T10:00:00Z,2026-01-01,1.5,1,true,",
        '2,2026-01-01 10:00,2026-01-02,2,"x, y",false,',
    ]
    expected = "id BIGINT, at TIMESTAMP, day DATE, amount DOUBLE, mixed STRING, flag BOOLEAN, empty STRING"
    plain = infer_file(put(tmp_path / "a.csv", *rows))
    assert (plain.ddl, plain.records, plain.unfit) == (expected, 2, 0)
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress((tmp_path / "a.csv").read_bytes()))
    assert infer_file(tmp_path / "b.csv.gz") == plain
    short = infer_file(put(tmp_path / "c.csv", *rows, "3,only"))
    assert (short.ddl, short.records, short.unfit) == (expected, 3, 1)
    with pytest.raises(InferError, match="no row below its header"):
        infer_file(put(tmp_path / "d.csv", rows[0]))


def test_columns_of_parquet_and_arrow_are_those_of_the_file(tmp_path: Path) -> None:
    table = pa.table(
        {
            "n": pa.array([1], pa.uint32()),
            "at": pa.array([0], pa.timestamp("ms")),
            "kind": pa.array(["a"]).dictionary_encode(),
            "cost": pa.array([1], pa.decimal128(9, 2)),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    with pa.OSFile(str(tmp_path / "a.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    for name in ("a.parquet", "a.arrow"):
        found = infer_file(tmp_path / name)
        assert (found.ddl, found.records, found.unfit) == (
            "n BIGINT, at TIMESTAMP, kind STRING, cost DECIMAL(9,2)",
            1,
            0,
        )


def test_the_first_file_of_a_folder_counts(tmp_path: Path) -> None:
    section = {"type": "file", "path": "in"}
    (tmp_path / "in").mkdir()
    with pytest.raises(InferError, match="holds no file of rows"):
        infer(section, tmp_path, None)
    put(tmp_path / "in" / "b.jsonl", '{"b": 1}')
    put(tmp_path / "in" / "a.jsonl", '{"a": 1}')
    put(tmp_path / "in" / ".hidden.jsonl", '{"h": 1}')
    assert infer(section, tmp_path, None).ddl == "a BIGINT"
    assert infer({"type": "http"}, tmp_path, tmp_path / "in" / "b.jsonl").ddl == "b BIGINT"
    with pytest.raises(InferError, match="source of type http"):
        infer({"type": "http"}, tmp_path, None)


async def test_the_columns_of_a_topic_are_those_of_its_records(broker: Broker, tmp_path: Path) -> None:
    import asyncio

    topic = await broker.create_topic()
    section = {"type": "kafka", "brokers": broker.brokers, "topics": [topic]}
    with pytest.raises(InferError, match="has no records yet"):
        await asyncio.to_thread(infer, section, tmp_path, None)
    await sent(broker, topic, (0, b'{"n": 1, "at": "2026-01-01T00:00:00Z"}'))
    assert (await asyncio.to_thread(infer, section, tmp_path, None)).ddl == "n BIGINT, at TIMESTAMP"


def test_a_topic_needs_an_extra_which_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    section = {"type": "kafka", "brokers": "b:9092", "topics": ["in"]}
    with pytest.raises(InferError, match=r"pip install 'spillway\[kafka\]'"):
        infer(section, tmp_path, None)


@pytest.mark.spark
def test_spark_reads_the_ddl_as_it_was_meant(spark: SparkSession) -> None:
    names = ["from", "select", "left", "timestamp", "a b", "x`y", "größe", "Array", "1st", "-"]
    kinds = [
        pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.binary(),
        pa.date32(), pa.timestamp("us", tz="UTC"), pa.decimal128(20, 3), pa.list_(pa.string()),
        pa.struct([pa.field("in side", pa.list_(pa.struct([pa.field("select", pa.int64())])))]),
    ]  # fmt: skip
    schema = pa.schema([*((name, pa.string()) for name in names), *((f"c{at}", kind) for at, kind in enumerate(kinds))])
    assert all(written_as(kind) == kind for kind in kinds)
    assert arrow_of(struct_of(spark, ddl_of(schema))).equals(schema, check_metadata=False)
