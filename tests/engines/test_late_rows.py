"""Which rows have no effect because they came too late: exactly these, whatever operator drops them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engines.late.laterows import LateRows
from engines.query.known import RefusedError, understand
from engines.streamable import check_streams
from infra.messages import EventTime, OpenQuery
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

USER = str(Path(__file__).parent / "user")
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
LATENESS_S = 5
DDL = "id BIGINT, name STRING, kind STRING, at TIMESTAMP"
AT = EventTime(column="at", lateness_ms=1000 * LATENESS_S)
# Seconds of events; rows are late by the watermark of the micro-batch before.
BATCHES = [(1, 2, 11), (16, 9, 21), (22,), (3, 12, 4, 33, 16), (13, 34, 14, 3), (27, 25, 9, 48), (31, 28, 50)]


def opened(bench: Bench, folder: Path, sql: str = "", **spec: Any) -> Running:
    spec = {"schema": DDL, "event_time": AT, "keep_late": ("",), "max_batch_runs": 1, **spec}
    return bench.open(sql, checkpoint_dir=str(folder), **spec)


def events(batch: int, seconds: tuple[int, ...], first: int) -> list[dict[str, Any]]:
    at = [BEGIN + dt.timedelta(seconds=second) for second in seconds]
    return [{"id": first + n, "name": f"n{batch}-{n}", "kind": "a", "at": each} for n, each in enumerate(at)]


def put_all(running: Running) -> None:
    put = 0
    for number, seconds in enumerate(BATCHES):
        running.put_seqs(put, events(number, seconds, put))
        put += len(seconds)
        running.rows_until(put)


def by_hand(dropped: Callable[[int, float], bool]) -> list[tuple[int, ...]]:
    """Return the late rows of each micro-batch: ``dropped`` says whether a second is, at a watermark of so many."""
    newest: list[float] = []
    found = []
    for seconds in BATCHES:
        late_s = max(newest[: max(0, len(newest) - 1)], default=-math.inf) - LATENESS_S
        found.append(tuple(row for row, second in enumerate(seconds) if dropped(second, late_s)))
        newest.append(max(seconds))
    return found


def window_end(second: int, size: int, slide: int) -> int:
    """Return when the last window that holds a second ends."""
    return second // slide * slide + size


WINDOWED = "SELECT window.end AS e, count(*) AS n FROM events GROUP BY window(at, {})"


@pytest.mark.parametrize(
    ("sql", "dropped"),
    [
        (WINDOWED.format("'10 seconds', '5 seconds'"), lambda s, w: window_end(s, 10, 5) <= w),
        (
            "SELECT kind, count(*) AS n FROM events GROUP BY kind, session_window(at, '4 seconds')",
            lambda s, w: s + 4 <= w,
        ),
        (
            (
                "SELECT window.end AS e, count(*) AS n FROM (SELECT id, at FROM events UNION ALL SELECT -id, at "
                "FROM events WHERE kind = 'a') GROUP BY window(at, '10 seconds')"
            ),
            lambda s, w: window_end(s, 10, 10) <= w,
        ),
        # Neither the rows that a condition leaves out are late, nor those that become more than one row.
        (
            (
                "CREATE TEMP VIEW some AS SELECT at, explode(array(id, -id)) AS each FROM events "
                "JOIN (VALUES ('a', 1)) AS known(kind, n) USING (kind) WHERE id % 7 <> 1; "
                "SELECT window.end AS e, max(each) AS m FROM some GROUP BY window(at, '10 seconds')"
            ),
            None,
        ),
        (
            (
                "SELECT l.id AS a, r.id AS b FROM events l LEFT JOIN events r "
                "ON l.name = r.name AND l.at BETWEEN r.at AND r.at + INTERVAL 5 SECONDS"
            ),
            lambda s, w: s <= w,
        ),
    ],
)
def test_the_rows_of_sql_are_those_by_hand(
    bench: Bench, tmp_path: Path, sql: str, dropped: Callable[[int, float], bool] | None
) -> None:
    running = opened(bench, tmp_path, sql)
    put_all(running)
    answers = running.collected.answers
    if dropped is None:
        firsts = [sum(map(len, BATCHES[:number])) for number in range(len(BATCHES))]
        wanted = [
            tuple(row for row in rows if (first + row) % 7 != 1)
            for first, rows in zip(firsts, by_hand(lambda s, w: window_end(s, 10, 10) <= w), strict=True)
        ]
    else:
        wanted = by_hand(dropped)
    assert [answer.late.rows for answer in answers] == wanted
    assert sum(map(len, wanted)) >= 3
    assert all(answer.state.too_late for answer in answers if answer.late.rows)
    last_s = answers[-1].late.watermark_ms / 1000 - BEGIN.timestamp()
    assert last_s in (0 - BEGIN.timestamp(), 34 - LATENESS_S)


@pytest.mark.parametrize("function", ["deduplicated", "deduplicated_by_time"])
def test_the_rows_of_a_removal_of_duplicates(bench: Bench, tmp_path: Path, function: str) -> None:
    running = opened(bench, tmp_path, function=f"user_functions:{function}", code_path=USER)
    put_all(running)
    wanted = by_hand(lambda s, w: s <= w)
    assert [answer.late.rows for answer in running.collected.answers] == wanted
    assert [answer.state.too_late for answer in running.collected.answers] == list(map(len, wanted))


def test_a_micro_batch_that_runs_again_has_the_same_late_rows(bench: Bench, tmp_path: Path) -> None:
    sql = WINDOWED.format("'10 seconds'")
    first = opened(bench, tmp_path, sql, commits=False)
    put = 0
    for number, seconds in enumerate(BATCHES[:5]):
        first.put_seqs(put, events(number, seconds, put))
        put += len(seconds)
        first.collected.wait(number + 1)
        if number < 4:
            first.stream.committed(put - 1)
    lost = first.collected.answers[-1]
    # The watermark comes from the newest event of the first three micro-batches, 22 s.
    assert lost.late == LateRows((3,), 1000 * (round(BEGIN.timestamp()) + 22 - LATENESS_S))
    first.stream.drop_waiting()
    first.collected.wait_for_death()
    first.stream.close()
    second = opened(bench, tmp_path, sql)
    begin = put - len(BATCHES[4])
    put_again = second.stream.progress.resume_seq
    assert put_again == begin
    second.put_seqs(begin, events(4, BATCHES[4], begin))
    second.rows_until(put)
    assert second.collected.answers[0].late == lost.late


def test_rows_are_counted_with_the_bad_ones_before_them() -> None:
    found = LateRows((0, 2, 3), 7)
    assert found.counted_with(set()) == found
    assert found.counted_with({9}) == found
    assert found.counted_with({0, 3}) == LateRows((1, 4, 5), 7)
    assert found.counted_with({1, 2, 3}) == LateRows((0, 5, 6), 7)
    assert LateRows().counted_with({0}) == LateRows()


def test_their_bits_say_which_they_are() -> None:
    assert LateRows((0, 9), 7).bits() == bytes([0b10000000, 0b01000000])
    assert LateRows().bits() == b""


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"function": "user_functions:totals", "code_path": USER}, "TransformWithState"),
        (
            {
                "sql": (
                    "SELECT window.end AS e, count(*) AS n FROM (SELECT window AS w, name FROM events "
                    "GROUP BY window(at, '10 seconds'), name) GROUP BY window(w, '1 minute')"
                )
            },
            "its plan has Aggregate below another operator that keeps state",
        ),
        (
            {"sql": WINDOWED.format("'10 seconds'").replace("GROUP", "WHERE rand() < 0.5 GROUP")},
            "would not have the same value again",
        ),
    ],
)
def test_plans_that_do_not_say_which_rows_they_drop_are_refused(
    spark: SparkSession, spec: dict[str, Any], says: str
) -> None:
    asked = OpenQuery(query="q", epoch=0, schema_ddl=DDL, event_time=AT, keep_late=("",), **spec)
    with pytest.raises(RefusedError) as caught:
        check_streams(understand(spark, asked))
    assert "event_time.late: dead-letters needs to know which rows come too late, but" in str(caught.value)
    assert says in str(caught.value)
    assert str(caught.value).endswith(": write late: drop")


def test_a_query_without_state_has_no_late_rows(bench: Bench) -> None:
    running = bench.open("SELECT id FROM events", schema=DDL, event_time=AT, keep_late=("",))
    running.put("old", events(0, (100, 1), 0))
    assert running.results(1) == {"old": [{"id": 0}, {"id": 1}]}
    assert running.collected.answers[0].late == LateRows()
