"""What a query makes of a sample, on Spark."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

from engines.isolation.atonce import evaluate
from engines.isolation.isolate import BrokenError
from engines.query.known import understand
from gateway.views.check.checking import opening
from gateway.views.tryout.overlap import overlap_of
from gateway.views.tryout.sampling import Sample
from gateway.views.tryout.trying import NotTried, Tried, notes, try_known
from gateway.views.tryout.tryview import shown
from tests.leaping_clock import LeapingClock
from tests.tryout.try_config import config_with, put, query

pytestmark = pytest.mark.spark


def tried(spark: SparkSession, folder: Path, **said: Any) -> Tried | NotTried:
    config = config_with(folder, words=query(**said))
    known = understand(spark, opening("words", config.queries["words"], "", folder / "copies"))
    return try_known(config, known, {}, 1000, folder / "work")


def text(outcome: Tried | NotTried, rows: int = 20) -> str:
    assert isinstance(outcome, Tried), outcome
    console = Console(width=1000, file=io.StringIO(), record=True)
    console.print(shown(outcome, rows))
    return console.export_text()


def test_rows_and_dead_letters_of_a_stateless_query(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", *(f'{{"id": "{n}", "n": {n}}}' for n in range(30)), '{"id": "x", "n": 1}', '{"n": []}')
    said = text(tried(spark, tmp_path, sql="SELECT CAST(id AS INT) + n AS sum FROM events"), 3)
    head = f"words: 32 records of {tmp_path / 'in.jsonl'} (these are all): 2 dead letters, 30 rows, the first 3:"
    assert said.startswith(head)
    shown_rows = [row.strip("│ ") for row in said.splitlines() if row.startswith("│")]
    assert shown_rows == ["0", "2", "4"]
    assert "record 31: " in said
    assert "event 30: the query fails over it: [CAST_INVALID_INPUT]" in said
    assert '{"id":"x","n":1}' in said


def test_a_query_with_state_shows_its_open_groups_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    put(
        tmp_path / "in.jsonl",
        '{"id": "a", "at": "2026-01-01T00:00:01Z"}',
        '{"id": "a", "at": "2026-01-01T00:00:02Z"}',
        '{"id": "b", "at": "2026-01-01T00:01:00Z"}',
    )
    outcome = tried(
        spark,
        tmp_path,
        schema="id STRING, at TIMESTAMP",
        event_time={"column": "at", "lateness": "10s"},
        sql="SELECT window.start AS begins, count(*) AS n FROM events GROUP BY window(at, '10 seconds')",
    )
    assert isinstance(outcome, Tried)
    assert sorted(row["n"] for row in outcome.results.to_pylist()) == [1, 2]
    said = text(outcome)
    assert "2026-01-01T00:01:00" in said
    assert "note: open groups and windows are shown as if the source had ended after these events" in said
    assert "waits 10s for late ones" in said


def test_selections_that_a_sample_closes_are_shown_without_the_events_at_fault(
    spark: SparkSession, tmp_path: Path
) -> None:
    put(tmp_path / "in.jsonl", *(f'{{"id": "{"x" if n == 3 else n}", "n": {n}}}' for n in range(9)))
    outcome = tried(
        spark,
        tmp_path,
        selections={"opens": {"every_events": 2}, "closes": {"events": 4}},
        sql="SELECT selection, sum(CAST(id AS INT)) AS total FROM events GROUP BY selection",
    )
    assert isinstance(outcome, Tried)
    assert [tuple(row.values()) for row in outcome.results.to_pylist()] == [(0, 3), (1, 11), (2, 22)]
    assert list(outcome.bad) == [3]
    assert outcome.notes == (
        "selections: 9 events open 5 selections and close 3; an event of those that close is in 1.5 of them on average",
        "selections that are still open after these events are not shown",
    )


def test_check_knows_the_overlap_of_what_a_file_has(spark: SparkSession, tmp_path: Path) -> None:
    windows = {"opens": {"every_events": 2}, "closes": {"events": 4}}
    sql = "SELECT selection, count(*) AS n FROM events GROUP BY selection"
    put(tmp_path / "in.jsonl", *(f'{{"id": "a", "n": {n}}}' for n in range(9)))
    config = config_with(tmp_path, words=query(selections=windows, sql=sql))
    known = understand(spark, opening("words", config.queries["words"], "", tmp_path / "copies"))
    assert overlap_of(config, "words", known, tmp_path / "copies") == (
        "the first 9 events open 5 selections and close 3; an event of those that close is in 1.5 of them on average"
    )
    (tmp_path / "in.jsonl").unlink()
    assert overlap_of(config, "words", known, tmp_path / "other") == ""


def test_rows_that_make_a_query_with_state_fail_are_left_out(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", '{"id": "1", "n": 1}', '{"id": "x", "n": 1}', '{"id": "3", "n": 2}')
    outcome = tried(spark, tmp_path, sql="SELECT n, sum(CAST(id AS INT)) AS s FROM events GROUP BY n")
    assert isinstance(outcome, Tried)
    assert sorted((row["n"], row["s"]) for row in outcome.results.to_pylist()) == [(1, 1), (2, 3)]
    assert list(outcome.bad) == [1]


def test_a_query_that_is_broken_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", *('{"id": "x", "n": 1}' for _ in range(5)))
    outcome = tried(spark, tmp_path, sql="SELECT CAST(id AS INT) AS n FROM events", dead_letters={"most": "0.1%"})
    assert isinstance(outcome, NotTried)
    assert outcome.refused
    assert outcome.why.startswith("query words: more than 1 of 1,000 rows fail")


def test_a_source_that_cannot_be_read_is_no_mistake_of_the_query(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in.csv", "other", "1")
    outcome = tried(spark, tmp_path, source={"type": "file", "path": "in.csv"})
    assert isinstance(outcome, NotTried)
    assert not outcome.refused
    assert "has none of the query's columns" in outcome.why


def test_a_search_for_bad_rows_ends(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", '{"id": "x", "n": 1}')
    config = config_with(tmp_path, words=query(sql="SELECT CAST(id AS INT) AS n FROM events"))
    known = understand(spark, opening("words", config.queries["words"], "", tmp_path / "copies"))
    events = _events(known.input_schema)
    with pytest.raises(BrokenError, match="took more than -1 s"):
        evaluate(known, events, LeapingClock(), search_s=-1.0)


def _events(schema: Any) -> Any:
    return pa.RecordBatch.from_pylist([{"id": "x", "n": 1}], schema=schema)


def test_what_data_hold_does_not_steer_the_terminal(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", r'{"id": "\u001b[31mred [bold]", "n": null}')
    said = text(tried(spark, tmp_path, sql="SELECT id, n FROM events"))
    assert "\x1b" not in said
    assert r"\x1b[31mred [bold]" in said
    assert "null" in said


def test_notes_say_what_differs_from_a_running_gateway(tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl")
    running = config_with(tmp_path, words=query(output={"mode": "update", "key": ["id"]})).queries["words"]
    assert notes(running, stateful=False) == ()
    assert any("output mode update" in note for note in notes(running, stateful=True))


def test_no_results_are_said(tmp_path: Path) -> None:
    sample = Sample(_events(pa.schema([("id", pa.string()), ("n", pa.int32())])), (), "in.jsonl", more=True)
    nothing = Tried("words", sample, pa.schema([("n", pa.int32())]).empty_table(), {})
    assert text(nothing) == "words: 1 record of in.jsonl (there are more): 0 dead letters, 0 rows\n"
