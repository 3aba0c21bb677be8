"""What happens to windows that are open when a query's source has ended (docs/until-drained.md)."""

from __future__ import annotations

import datetime as dt
import math
from collections import Counter
from collections.abc import Callable
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


LATENESS_S = 5
BATCHES = [(1, 2, 11), (16, 9, 21), (22,), (3, 4, 12, 33), (3, 3, 12, 34), (48,)]


def by_hand(windows_of: Callable[[int], list[tuple[int, int]]]) -> tuple[dict[int, int], list[int], list[int]]:
    """Return what Spark's guide says: the counts of the windows, and of each batch the dropped and the open ones."""
    open_windows: dict[tuple[int, int], int] = {}
    closed, dropped, left = dict[int, int](), list[int](), list[int]()
    newest: list[float] = []
    for seconds in BATCHES:
        # Rows are late by the watermark of the batch before; windows are closed by that of this batch.
        late_s, now_s = (max(newest[:end], default=-math.inf) - LATENESS_S for end in (max(0, len(newest) - 1), None))
        found = Counter(window for second in seconds for window in windows_of(second))
        kept = {window: count for window, count in found.items() if window[1] > late_s}
        dropped.append(len(found) - len(kept))
        for window, count in kept.items():
            open_windows[window] = open_windows.get(window, 0) + count
        for begin, end in [window for window in open_windows if window[1] <= now_s]:
            closed[begin] = open_windows.pop((begin, end))
        left.append(len(open_windows))
        newest.append(max(*newest, *seconds) if newest else max(seconds))
    return closed, dropped, left


def tumbling(second: int) -> list[tuple[int, int]]:
    return [(second // 10 * 10, second // 10 * 10 + 10)]


def sliding(second: int) -> list[tuple[int, int]]:
    return [(begin, begin + 10) for begin in (second // 5 * 5 - 5, second // 5 * 5)]


@pytest.mark.parametrize(("window", "windows_of"), [("'10 seconds'", tumbling), ("'10 seconds', '5 seconds'", sliding)])
def test_windows_need_no_python_and_what_comes_too_late_is_counted(
    bench: Bench, tmp_path: Path, window: str, windows_of: Callable[[int], list[tuple[int, int]]]
) -> None:
    running = bench.open(
        f"CREATE TEMP VIEW counted AS SELECT window.start AS start, count(*) AS count FROM events "
        f"GROUP BY window(at, {window}); SELECT * FROM counted",
        schema="at TIMESTAMP",
        event_time=EventTime(column="at", lateness_ms=1000 * LATENESS_S),
        checkpoint_dir=str(tmp_path),
        max_batch_runs=1,
    )
    put = 0
    for seconds in BATCHES:
        running.put_seqs(put, rows(*seconds))
        put += len(seconds)
        running.rows_until(put)
    closed, dropped, left = by_hand(windows_of)
    assert counts(running.rows_until(put)) == closed
    figures = [answer.state for answer in running.collected.answers]
    assert [each.too_late for each in figures] == dropped
    assert [each.open_groups for each in figures] == left
    assert sum(dropped) >= 2
    assert left[-1] >= 2


def test_the_event_time_of_a_query_without_state_is_ignored(bench: Bench) -> None:
    running = bench.open(
        "SELECT at FROM events", schema="at TIMESTAMP", event_time=EventTime(column="at", lateness_ms=0)
    )
    plan = running.stream.query.plan
    assert (plan.switch_class, plan.switchable, plan.narrow) == ("stateless", True, True)
    running.put("new", rows(100))
    running.put("old", rows(1))
    assert running.results(2) == {"new": rows(100), "old": rows(1)}
