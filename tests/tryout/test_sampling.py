"""The sample of a query's events, and that reading it leaves no trace."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from gateway.config import Config
from gateway.views.tryout.sampling import Sample, SampleError, given_files, read_sample, why_no_sample
from tests.tryout.try_config import config_with, put, query

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int32())])
HTTP = {"type": "http", "listen": "127.0.0.1:0"}
MQTT = {"type": "mqtt", "host": "broker", "topics": ["a/#"]}


def sampled(config: Config, folder: Path, most: int = 100, **given: Path) -> Sample:
    return read_sample(
        config, "words", SCHEMA, {name.replace("only", ""): path for name, path in given.items()}, folder, most
    )


def line(n: int) -> str:
    return f'{{"id": "e{n}", "n": {n}}}'


def test_the_first_records_are_read_and_bad_ones_are_dead_letters(tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", line(0), line(1), '{"id": "bad", "n": "x"}', *map(line, range(3, 10)))
    config = config_with(tmp_path, words=query())
    sample = sampled(config, tmp_path / "work", 5)
    assert sample.events.column("n").to_pylist() == [0, 1, 3, 4]
    assert [(each.record, each.raw) for each in sample.dead] == [(2, b'{"id": "bad", "n": "x"}')]
    assert sample.more
    whole = sampled(config, tmp_path / "work", 10)
    assert (whole.events.num_rows, whole.more) == (9, False)
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()


def test_a_csv_with_a_row_that_does_not_fit(tmp_path: Path) -> None:
    put(tmp_path / "in.csv", "id,n", "a,1", "b,two", "c,3")
    sample = sampled(config_with(tmp_path, words=query(source={"type": "file", "path": "in.csv"})), tmp_path / "work")
    assert sample.events.to_pylist() == [{"id": "a", "n": 1}, {"id": "c", "n": 3}]
    assert [(each.record, each.place) for each in sample.dead] == [(1, "line 3")]
    assert not sample.more


def test_a_followed_folder_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    put(tmp_path / "in" / "a.jsonl", line(1))
    put(tmp_path / "in" / "b.jsonl", line(2), line(3))
    config = config_with(tmp_path, words=query(source={"type": "file", "path": "in", "follow": True}))
    sample = sampled(config, tmp_path / "work")
    assert sample.events.column("n").to_pylist() == [1, 2, 3]
    assert not sample.more
    assert {path.name for path in (tmp_path / "in").iterdir()} == {"a.jsonl", "b.jsonl"}


@pytest.mark.parametrize("source", [HTTP, MQTT])
def test_where_nothing_can_be_read_in_advance_a_file_stands_in(tmp_path: Path, source: dict[str, object]) -> None:
    config = config_with(tmp_path, words=query(source=source))
    why = why_no_sample(config, "words", {})
    assert why.startswith("source: ")
    assert "only come while a gateway runs" in why
    assert why.endswith("--sample FILE")
    file = put(tmp_path / "given.jsonl", line(7))
    assert why_no_sample(config, "words", {"": file}) == ""
    assert sampled(config, tmp_path / "work", only=file).events.column("n").to_pylist() == [7]


def test_the_results_of_another_query_are_read_once_there_are_some(tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", line(0))
    upstream = query(sink={"type": "file", "path": "up"})
    config = config_with(tmp_path, words=query(source={"type": "query", "name": "first"}), first=upstream)
    assert "query first has written no results yet" in why_no_sample(config, "words", {})


def test_each_of_several_streams_is_sampled(tmp_path: Path) -> None:
    put(tmp_path / "a.jsonl", line(1), line(2), line(3))
    put(tmp_path / "b.jsonl", '{"m": 4}', '{"m": "x"}')
    streams = {
        "left": {"source": {"type": "file", "path": "a.jsonl"}, "schema": "id STRING, n INT"},
        "right": {"source": {"type": "file", "path": "b.jsonl"}, "schema": "m INT"},
    }
    config = config_with(tmp_path, words=query(sources=streams, sql="SELECT m FROM right"))
    table = pa.schema([("_stream", pa.string()), *SCHEMA, ("m", pa.int32())])
    sample = read_sample(config, "words", table, {}, tmp_path / "work", 2)
    rows = [tuple(row.values()) for row in sample.events.to_pylist()]
    assert rows == [("left", "e1", 1, None), ("left", "e2", 2, None), ("right", None, None, 4)]
    assert [each.stream for each in sample.dead] == ["right"]
    assert sample.more
    assert given_files(config.queries["words"], ["left=a=b.jsonl"]) == {"left": Path("a=b.jsonl")}
    for wrong in (["a.jsonl"], ["middle=a.jsonl"], ["left="], ["left=a", "left=b"]):
        with pytest.raises(SampleError, match="--sample"):
            given_files(config.queries["words"], wrong)


def test_a_sample_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", line(0))
    config = config_with(tmp_path, words=query())
    with pytest.raises(SampleError, match=r"given\.jsonl does not exist"):
        sampled(config, tmp_path / "work", only=tmp_path / "given.jsonl")
    with pytest.raises(SampleError, match="unsupported type"):
        sampled(config, tmp_path / "work", only=tmp_path / "given.xlsx")
    headless = put(tmp_path / "other.csv", "other", "1")
    with pytest.raises(SampleError, match=r"none of the query's columns.*or give a file"):
        sampled(config, tmp_path / "work", only=headless)
