from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import TypeAdapter

from gateway.config import QueryConfig
from gateway.config.models import FileSourceConfig
from gateway.sources.files.filesource import make_file_source, make_schedule
from gateway.views.check.checksource import source_text
from infra.clock import SystemClock
from tests.support.source_data import HUGE

SCHEMA = pa.schema([("at", pa.timestamp("us", "UTC")), ("n", pa.int64())])


def config(path: Path, **said: Any) -> FileSourceConfig:
    return TypeAdapter(FileSourceConfig).validate_python({"type": "file", "path": str(path), **said})


def lines(path: Path, numbers: range) -> None:
    path.parent.mkdir(exist_ok=True)
    texts = [json.dumps({"at": f"2020-01-01T00:00:{n:02}Z", "n": n}) for n in numbers]
    path.write_text("".join(text + "\n" for text in texts))


async def numbers(said: FileSourceConfig, folder: Path) -> list[int]:
    source = make_file_source(said, folder, SystemClock(), strict=False)
    await source.open(SCHEMA)
    found: list[int] = []
    while (chunk := await source.read(3, HUGE)) is not None:
        found += chunk.batch.column("n").to_pylist()
    assert await source.finished() == (not said.follow)
    await source.close()
    return found


async def test_a_folder_of_rows_is_read_in_order_of_name_and_its_times_in_the_same(tmp_path: Path) -> None:
    lines(tmp_path / "in" / "b.jsonl", range(4, 8))
    pq.write_table(
        pa.table({"at": pa.array([0, 10**6, 2 * 10**6, 3 * 10**6], SCHEMA.field("at").type), "n": range(4)}),
        tmp_path / "in" / "a.parquet",
    )
    said = config(tmp_path / "in", replay={"times": "at", "speed": 2, "loops": 2})
    assert await numbers(said, tmp_path / "state") == [*range(8)] * 2
    lines(tmp_path / "in" / "0.jsonl", range(50, 59))
    plan = make_schedule(said, SCHEMA, tmp_path / "state", SystemClock())
    assert plan is not None
    assert [plan.due_s(record) for record in range(4)] == [0, 0.5, 1.0, 1.5]
    assert [plan.due_s(record) - plan.due_s(4) for record in range(4, 8)] == [0, 0.5, 1.0, 1.5]
    assert plan.due_s(8) > plan.due_s(7)


async def test_a_followed_folder_may_be_empty_at_first(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    said = config(tmp_path / "in", follow=True)
    assert await numbers(said, tmp_path / "state") == []
    lines(tmp_path / "in" / "a.jsonl", range(3))
    assert await numbers(said, tmp_path / "state") == [0, 1, 2]


def test_the_speed_multiplies_rates(tmp_path: Path) -> None:
    lines(tmp_path / "a.jsonl", range(3))
    steady = make_schedule(
        config(tmp_path / "a.jsonl", replay={"rate": "10/s", "speed": 4}), SCHEMA, tmp_path, SystemClock()
    )
    steps = [{"for": "2s", "rate": "10/s"}, {"for": "1s", "rate": "1/s"}]
    stepped = make_schedule(
        config(tmp_path / "a.jsonl", replay={"profile": steps, "speed": 2}), SCHEMA, tmp_path, SystemClock()
    )
    assert steady is not None
    assert stepped is not None
    assert steady.due_s(40) == pytest.approx(1.0)
    assert stepped.due_s(20) == pytest.approx(1.0)
    assert stepped.due_s(22) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("said", "text"),
    [
        ({"follow": True}, "its files and those that appear later"),
        ({"replay": {"times": "at", "speed": 10}}, "at the times in column at, 10 times as fast, 1 time"),
    ],
)
def test_check_says_how_files_are_read(tmp_path: Path, said: dict[str, Any], text: str) -> None:
    lines(tmp_path / "in" / "a.jsonl", range(3))
    query = QueryConfig.model_validate(
        {
            "source": {"type": "file", "path": str(tmp_path / "in"), **said},
            "schema": "at TIMESTAMP, n BIGINT",
            "sql": "SELECT n FROM events",
            "sink": {"type": "file", "path": str(tmp_path / "out")},
            "qos": {"latency": "2s"},
        }
    )
    assert source_text(query.inputs[""]).endswith(text)
