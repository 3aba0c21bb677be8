"""What happens to windows that are open when a query's source has ended (docs/until-drained.md)."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

from infra.messages import EventTime
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

USER = str(Path(__file__).parent / "user")
BEGIN = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


def rows(*seconds: int) -> list[dict[str, Any]]:
    return [{"at": BEGIN + dt.timedelta(seconds=second)} for second in seconds]


def opened(bench: Bench, folder: Path) -> Running:
    return bench.open(
        function="user_functions:counted",
        code_path=USER,
        schema="at TIMESTAMP",
        checkpoint_dir=str(folder),
        max_batch_runs=1,
    )


def counts(found: list[dict[str, Any]]) -> dict[int, int]:
    assert len({row["start"] for row in found}) == len(found), "a window came twice"
    return {round((row["start"] - BEGIN).total_seconds()): row["count"] for row in found}


def test_open_windows_are_not_emitted_and_a_later_start_goes_on_with_them(bench: Bench, tmp_path: Path) -> None:
    first = opened(bench, tmp_path)
    first.put_seqs(0, rows(1, 2, 11))
    first.rows_until(3)
    first.put_seqs(3, rows(16, 21))
    first.rows_until(5)
    # The watermark of a batch comes from those before it: this one gives what the last two have closed.
    first.put_seqs(5, rows(22))
    assert counts(first.rows_until(6)) == {0: 2}
    first.stream.close()

    second = opened(bench, tmp_path)
    resume = second.stream.progress.resume_seq
    assert resume in (5, 6)
    if resume == 5:
        second.put_seqs(5, rows(22))
        second.rows_until(6)
    second.put_seqs(6, rows(40))
    second.rows_until(7)
    second.put_seqs(7, rows(41))
    # What was open at the end has all its events, from before and after.
    assert {start: count for start, count in counts(second.rows_until(8)).items() if start} == {10: 2, 20: 2}


COUNTED = "SELECT window.start AS start, count(*) AS count FROM events GROUP BY window(at, '10 seconds')"


def test_windows_need_no_python_when_the_event_time_is_declared(bench: Bench, tmp_path: Path) -> None:
    running = bench.open(
        COUNTED,
        schema="at TIMESTAMP",
        event_time=EventTime(column="at", lateness_ms=5_000),
        checkpoint_dir=str(tmp_path),
        max_batch_runs=1,
    )
    batches = [(1, 2, 11), (16, 9, 21), (22,), (3, 33), (34,)]
    put = 0
    for seconds in batches:
        running.put_seqs(put, rows(*seconds))
        put += len(seconds)
        running.rows_until(put)
    # 3 comes when 22 - 5 has passed the end of its window; 9 came in time.
    assert counts(running.rows_until(put)) == {0: 3, 10: 2}


def test_the_event_time_of_a_query_without_state_is_ignored(bench: Bench) -> None:
    running = bench.open(
        "SELECT at FROM events", schema="at TIMESTAMP", event_time=EventTime(column="at", lateness_ms=0)
    )
    plan = running.stream.query.plan
    assert (plan.switch_class, plan.switchable, plan.narrow) == ("stateless", True, True)
    running.put("new", rows(100))
    running.put("old", rows(1))
    assert running.results(2) == {"new": rows(100), "old": rows(1)}
