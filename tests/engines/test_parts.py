"""Parts of a keyed query, each with a state of its own, together give the rows of the undivided query, run by run."""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from engines.query.conditions import kind_of, scala_items
from engines.query.known import RefusedError, understand
from engines.query.parts.heartbeats import Build
from engines.query.parts.timely import optimised, why_watermarks_differ
from engines.spark.session import sibling
from infra.messages import HEARTBEAT, EventTime, KeyPart, OpenQuery, Predicate
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

USER = str(Path(__file__).parent / "user")
SCHEMA = "id INT, name STRING, amount INT, at TIMESTAMP"
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
LATENESS = EventTime(column="at", lateness_ms=5_000)
PARTS = 2
RUNS, EVENTS = 6, 12
NAMES = ("a", "b", "c", "e", "h", "j")

Row: TypeAlias = dict[str, Any]
Rows: TypeAlias = Sequence[Row]


class Kind(NamedTuple):
    """A keyed query; ``reads`` says which events its conditions let through."""

    query: dict[str, Any]
    reads: Callable[[Row], bool] = lambda _: True
    event_time: EventTime | None = LATENESS


def counted(window: str, condition: str = "true") -> dict[str, Any]:
    return {
        "sql": f"SELECT name, min(at) AS first, sum(amount) AS total FROM events WHERE {condition} "
        f"GROUP BY {window}, name"
    }


WINDOWS = counted("window(at, '10 seconds')", "amount > 3")
PART = KeyPart(key="name", index=1, parts=PARTS)
KINDS = {
    "windows": Kind(WINDOWS, lambda row: row["amount"] > 3),
    "sessions": Kind(counted("session_window(at, '4 seconds')")),
    "duplicates": Kind({"function": "user_functions:once", "code_path": USER}),
    "join": Kind(
        {
            "sql": "WITH named AS (SELECT * FROM events WHERE name IS NOT NULL) SELECT a.id, b.id AS other FROM named "
            "a LEFT JOIN named b ON a.name = b.name AND b.at > a.at AND b.at <= a.at + INTERVAL 5 SECONDS"
        },
        lambda row: row["name"] is not None,
    ),
    "function with state": Kind({"function": "user_functions:totals", "code_path": USER}, event_time=None),
}


def spec_of(query: dict[str, Any], part: KeyPart | None = None) -> OpenQuery:
    common: dict[str, Any] = {"schema_ddl": SCHEMA, "event_time": LATENESS, "max_batch_runs": 1, "part": part}
    return OpenQuery(query="q" if part is None else f"q.{part.index}", epoch=1, **(common | query))


def some_runs(seed: int) -> list[list[Row]]:
    """Runs of events, many out of order and some too late."""
    draw = random.Random(seed)

    def event(number: int) -> Row:
        second = number // EVENTS * 6 + draw.randint(-20, 5)
        return {
            "id": number,
            "name": draw.choice([*NAMES, None]),
            "amount": draw.randint(0, 9),
            "at": BEGIN + dt.timedelta(seconds=100 + second, milliseconds=number),
        }

    return [[event(run * EVENTS + number) for number in range(EVENTS)] for run in range(RUNS)]


def part_of(name: str | None) -> int:
    return hashlib.sha256(repr(name).encode()).digest()[0] % PARTS


def of_part(run: Rows, part: int, kind: Kind) -> list[Row]:
    """What the gateway sends to a part of a run."""
    rows = [row | {HEARTBEAT: False} for row in run if part_of(row["name"]) == part]
    seen = [row for row in run if kind.reads(row)]
    if kind.event_time is None:
        beats = [] if rows else [run[0]]
    else:
        newest = max(seen, key=lambda row: row["at"])
        beats = [] if part_of(newest["name"]) == part else [newest]
    return rows + [row | {HEARTBEAT: True} for row in beats]


def opened(bench: Bench, folder: Path, kind: Kind, part: int | None) -> Running:
    named = ("",) if kind.event_time is not None else ()
    own = {"event_time": kind.event_time, "checkpoint_dir": str(folder / f"q.{part}"), "keep_late": named}
    spec = spec_of(kind.query | own, None if part is None else KeyPart(key="name", index=part, parts=PARTS))
    known = understand(bench.spark, spec)

    def build(events: DataFrame) -> DataFrame:
        # The rows are the same, and micro-batches with one task are quicker.
        events.sparkSession.conf.set("spark.sql.shuffle.partitions", "1")
        return known.build(events)

    return bench.start(replace(known, build=build, warm=True))


def put(running: Running, runs: Sequence[Rows]) -> None:
    for number, rows in enumerate(runs):
        running.put(number, rows, number, number + 1)


def rows_of_runs(running: Running) -> list[Counter[str]]:
    """The result rows of each run."""
    running.rows_until(RUNS)
    answers = running.collected.answers
    assert running.limits() == [(run, run + 1) for run in range(RUNS)]
    return [Counter(repr(sorted(row.items())) for row in answer.rows.to_pylist()) for answer in answers]


def late_ids(running: Running, runs: Sequence[Rows]) -> list[set[int]]:
    """The ids of the rows of each run that are said to have come too late."""
    answers = running.collected.answers
    return [{rows[row]["id"] for row in answer.late.rows} for rows, answer in zip(runs, answers, strict=True)]


def summed(parts: Sequence[Sequence[Counter[str]]]) -> list[Counter[str]]:
    return [sum(of_run, Counter[str]()) for of_run in zip(*parts, strict=True)]


@pytest.mark.parametrize("name", KINDS)
def test_all_parts_together_give_the_rows_of_the_undivided_query(bench: Bench, tmp_path: Path, name: str) -> None:
    kind, runs = KINDS[name], some_runs(7)
    undivided = opened(bench, tmp_path, kind, None)
    put(undivided, runs)
    parts = [opened(bench, tmp_path, kind, part) for part in range(PARTS)]
    runs_of = [[of_part(run, part, kind) for run in runs] for part in range(PARTS)]
    for running, own in zip(parts, runs_of, strict=True):
        put(running, own)
    expected, found = rows_of_runs(undivided), [rows_of_runs(running) for running in parts]
    assert summed(found) == expected
    assert sum(map(bool, expected)) >= 3, "rows come in several runs"
    assert all(any(rows) for rows in found), "each part gives rows"
    if kind.event_time is not None:
        late = [[answer.state.too_late for answer in running.collected.answers] for running in (undivided, *parts)]
        assert sum(late[0]) == sum(map(sum, late[1:])) > 0
        named = [late_ids(running, own) for running, own in zip(parts, runs_of, strict=True)]
        assert [set().union(*each) for each in zip(*named, strict=True)] == late_ids(undivided, runs)
        assert sum(map(len, late_ids(undivided, runs))) == sum(len(each) for part in named for each in part) > 0
    if name == "sessions":
        (other := tmp_path / "other").mkdir()
        mistaken = opened(bench, other, kind, 0)
        put(mistaken, [[row for row in of_part(run, 0, kind) if not row[HEARTBEAT]] for run in runs])
        assert summed([rows_of_runs(mistaken), *found[1:]]) != expected, "without heartbeats the rows differ"


def test_a_part_has_the_plan_and_the_schemas_of_the_undivided_query_and_its_runs_one_column_more(
    spark: SparkSession,
) -> None:
    undivided, part = understand(spark, spec_of(WINDOWS)), understand(spark, spec_of(WINDOWS, PART))
    assert part.plan == undivided.plan
    assert (part.input_schema, part.result_schema) == (undivided.input_schema, undivided.result_schema)
    assert undivided.run_schema == undivided.input_schema
    assert part.run_schema == undivided.input_schema.append(pa.field(HEARTBEAT, pa.bool_()))
    assert part.run_columns.names == part.run_schema.names


def test_heartbeats_are_dropped_above_the_watermark_and_below_all_that_the_user_wrote_above_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    def filters_and_watermarks(build: Build, columns: StructType) -> list[str]:
        """The optimised plan, from the source to the top; conditions in the order in which they are evaluated."""
        stream = sibling(spark).readStream.schema(columns).parquet(tmp_path.as_uri())
        plan, found = optimised(build(stream)), list[list[str]]()
        while not plan.children().isEmpty():
            if kind_of(plan) == "EventTimeWatermark":
                found.append(["watermark"])
            if kind_of(plan) == "Filter":
                said = str(plan.condition().sql())
                found.append(sorted((each for each in ("> 3", "hour(", HEARTBEAT) if each in said), key=said.index))
            (plan,) = scala_items(plan.children())
        return [each for level in reversed(found) for each in level]

    query = counted("window(at, '10 seconds')", "hour(at) + amount < 99 AND amount > 3")
    part, undivided = understand(spark, spec_of(query, PART)), understand(spark, spec_of(query))
    assert filters_and_watermarks(undivided.build, undivided.run_columns) == ["> 3", "watermark", "hour("]
    assert filters_and_watermarks(part.build, part.run_columns) == ["> 3", "watermark", HEARTBEAT, "hour("]

    stream = sibling(spark).readStream.schema(undivided.columns).parquet(tmp_path.as_uri())
    plan, conditions = optimised(undivided.build(stream)), undivided.plan.predicates
    assert why_watermarks_differ(plan, conditions, undivided.input_schema) == ""
    more = (*conditions, Predicate(op="not_null", column=("id",)))
    assert "the one on id: Spark evaluates it after" in why_watermarks_differ(plan, more, undivided.input_schema)

    def plainly(events: DataFrame) -> DataFrame:
        return events.withWatermark("at", "5 seconds").where(f"NOT {HEARTBEAT}")

    assert filters_and_watermarks(plainly, part.run_columns) == [HEARTBEAT, "watermark"], "why it is not that simple"


@pytest.mark.parametrize(
    ("query", "part", "said"),
    [
        ({"sql": "SELECT DISTINCT name FROM events LIMIT 3"}, PART, "q.1: it cannot be divided by key: it has a LIMIT"),
        ({"sql": "SELECT name FROM events"}, PART, "it holds no state"),
        (WINDOWS, KeyPart(key="id", index=1, parts=3), "by id, because .* it can be divided by name"),
        (WINDOWS, KeyPart(key="name", index=3, parts=3), "part 3 of 3"),
        (
            {
                "sql": "SELECT count(*) AS n FROM events WATERMARK at DELAY OF INTERVAL 1 MINUTE "
                "GROUP BY name, window(at, '1 minute')"
            },
            PART,
            "give the column .* as event_time",
        ),
        ({"function": "user_functions:own_watermark", "code_path": USER}, PART, "give the column .* as event_time"),
        (
            {"function": "user_functions:own_watermark", "code_path": USER, "event_time": None},
            PART,
            "give the column .* as event_time",
        ),
        ({"sql": "SELECT 1", "schema_ddl": "id INT, name STRING, at TIMESTAMP, _heartbeat INT"}, PART, "rename yours"),
        (counted("window(at, '10 seconds')", "upper(name) < 'X'"), PART, "upper.*name.*: the gateway can only compare"),
        (
            {"sql": "SELECT a.id FROM events a LEFT JOIN events b ON a.name = b.name AND a.at = b.at"},
            PART,
            "name IS NOT NULL.*: not all events that the query reads",
        ),
    ],
)
def test_what_cannot_be_divided_exactly_is_refused(
    spark: SparkSession, query: dict[str, Any], part: KeyPart, said: str
) -> None:
    with pytest.raises(RefusedError, match=said):
        understand(spark, spec_of(query, part))


def test_a_bad_row_is_reported_by_its_number_in_the_run_and_moves_the_watermark_as_in_other_parts(
    bench: Bench, tmp_path: Path
) -> None:
    def row(second: int, text: str, *, heartbeat: bool = False) -> Row:
        return {"name": "n", "text": text, "at": BEGIN + dt.timedelta(seconds=second), HEARTBEAT: heartbeat}

    running = bench.open(
        "SELECT window.start AS start, sum(CAST(text AS INT)) AS total FROM events "
        "WHERE CAST(text AS INT) + second(at) > 0 GROUP BY window(at, '10 seconds'), name",
        query="q.1",
        schema="name STRING, text STRING, at TIMESTAMP",
        event_time=EventTime(column="at", lateness_ms=0),
        checkpoint_dir=str(tmp_path / "q.1"),
        max_batch_runs=1,
        part=PART,
    )
    put(
        running,
        [
            [row(4, "no number", heartbeat=True), row(1, "1"), row(2, "bad"), row(3, "2")],
            [row(12, "4"), row(25, "the newest, and bad")],
            [row(26, "8"), row(27, "no number", heartbeat=True)],
        ],
    )
    running.rows_until(3)
    answers = running.collected.answers
    assert [[bad.row for bad in answer.poison] for answer in answers] == [[2], [1], []]
    begins = [[(row["start"] - BEGIN).seconds for row in answer.rows.to_pylist()] for answer in answers]
    assert [sorted(begin) for begin in begins] == [[], [], [0, 10]]
    assert sorted(row["total"] for row in answers[2].rows.to_pylist()) == [3, 4]
