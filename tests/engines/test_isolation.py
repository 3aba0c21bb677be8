"""Exactly the rows that fail by themselves are found to be bad, while the query's next runs are processed."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from engines.isolation.verdicts import Verdicts
from engines.streaming.answers import RunOutcome
from engines.streaming.feed import FeedClosed
from tests.engines.stream_bench import DEADLINE_S, Bench, Running

pytestmark = pytest.mark.spark

USER = str(Path(__file__).with_name("user"))
ROWS = 2000
SOON_S = 20.0
CAST = "SELECT id, CAST(name AS INT) AS n FROM events"


def rows_of(bad: set[int], count: int = ROWS) -> list[dict[str, Any]]:
    return [{"id": row, "name": f"x{row}" if row in bad else str(row)} for row in range(count)]


def some(count: int, among: int = ROWS) -> set[int]:
    return set(random.Random(count).sample(range(among), count))


def poison_of(running: Running, tag: object) -> dict[int, str]:
    (answer,) = [answer for answer in running.collected.answers if answer.items[0].tag == tag]
    return {each.row: each.reason for each in answer.poison}


def wait(condition: Callable[[], object]) -> None:
    ends_s = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends_s, "the state that the test waits for did not come"
        time.sleep(0.01)


def test_exactly_the_rows_that_cannot_be_cast_are_poison_however_many_and_however_they_are_cut(bench: Bench) -> None:
    running = bench.open(CAST)
    bads = {count: some(count) for count in (0, 1, 6, 20, 500, ROWS)}
    for count, bad in bads.items():
        running.put(count, rows_of(bad))
    cut = rows_of(bads[20])
    for first in range(0, ROWS, 500):
        running.put(("part", first), cut[first : first + 500])
    found = running.results(len(bads) + 4)
    for count, bad in bads.items():
        assert found[count] == [{"id": row, "n": row} for row in range(ROWS) if row not in bad]
        poison = poison_of(running, count)
        assert set(poison) == bad
        assert all("CAST_INVALID_INPUT" in reason and f"'x{row}'" in reason for row, reason in poison.items())
    parts = {first: poison_of(running, ("part", first)) for first in range(0, ROWS, 500)}
    assert {first + row for first, poison in parts.items() for row in poison} == bads[20]
    assert [row for first in parts for row in found["part", first]] == found[20]


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"sql": "SELECT id, id DIV (id % 100 - 7) AS n FROM events"}, "DIVIDE_BY_ZERO"),
        ({"sql": "SELECT id, IF(id % 100 = 7, raise_error('no sevens'), 1) AS n FROM events"}, "no sevens"),
        ({"function": "user_functions:no_sevens", "code_path": USER}, "ValueError: no sevens"),
        # Rows move between partitions: every slice is judged on its own.
        ({"sql": "SELECT /*+ REPARTITION(2) */ id, id DIV (id % 100 - 7) AS n FROM events"}, "DIVIDE_BY_ZERO"),
    ],
    ids=["division", "raise_error", "python", "not narrow"],
)
def test_whatever_fails_only_its_own_rows_are_poison(bench: Bench, spec: dict[str, Any], said: str) -> None:
    running = bench.open(**spec)
    running.put("run", rows_of(set(), 310))
    found = running.results(1)["run"]
    assert sorted(row["id"] for row in found) == [row for row in range(310) if row % 100 != 7]
    poison = poison_of(running, "run")
    assert set(poison) == {7, 107, 207, 307}
    assert all(said in reason for reason in poison.values())


def test_the_next_runs_and_other_queries_go_on_while_rows_are_looked_for(bench: Bench) -> None:
    running, other = bench.open(CAST, max_batch_runs=1), bench.open("SELECT id FROM events")
    running.put("bad", rows_of(set(range(ROWS))))
    wait(lambda: running.isolating == ["bad"])
    running.put("next", rows_of(set(), 3))
    other.put("other", rows_of(set(), 3))
    other.results(1)
    running.results(2)
    assert [answer.items[0].tag for answer in running.collected.answers] == ["next", "bad"]
    assert len(poison_of(running, "bad")) == ROWS


def test_a_run_is_judged_before_all_later_runs_were_tried(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    running = bench.open(CAST, max_batch_runs=1)
    tried, runs = set(), 8

    class Watched(Verdicts):
        def results(self, rows: pa.RecordBatch) -> pa.Table:
            wait(lambda: len(running.isolating) == runs)
            if rows.num_rows == 2:
                tried.add(rows["id"][0].as_py())
            return super().results(rows)

    monkeypatch.setattr("engines.isolation.isolation.Verdicts", Watched)
    tried_then: list[int] = []
    take = running.collected.take

    def noting(answers: list[RunOutcome]) -> None:
        tried_then.append(len(tried))
        take(answers)

    monkeypatch.setattr(running.collected, "take", noting)
    for run in range(runs):
        running.put(run, [{"id": run, "name": "x"}, {"id": run, "name": "y"}])
    running.results(runs)
    assert [set(poison_of(running, run)) for run in range(runs)] == [{0, 1}] * runs
    assert tried_then[0] <= 3, "the first run waited for all others to be tried"


def test_a_run_that_passes_alone_is_answered(bench: Bench, tmp_path: Path) -> None:
    running = bench.open(function="user_functions:fails_once", code_path=USER)
    running.put("run", [{"id": 1, "name": str(tmp_path / "was-here")}])
    assert running.results(1)["run"] == [{"n": 1}]
    assert poison_of(running, "run") == {}


def test_a_query_of_which_too_many_rows_fail_is_broken_soon_and_no_row_is_blamed(bench: Bench) -> None:
    running = bench.open(CAST, bad_rows_most=200)
    running.put("bad", rows_of(some(1000)))
    assert running.told_broken.wait(DEADLINE_S)
    assert "more than 200 of 1,000 rows fail" in running.broken[0]
    assert "CAST_INVALID_INPUT" in running.broken[0]
    assert running.collected.answers == []
    assert not running.stream.can_change_owner


def test_a_query_that_exhausts_the_memory_of_a_host_that_it_shares_ends_there_unjudged(bench: Bench) -> None:
    running = bench.open(CAST, shares_host=True)
    running.put("bad", [{"id": 1, "name": "java.lang.OutOfMemoryError"}])
    assert running.told_broken.wait(DEADLINE_S)
    assert "it needed more memory than the engine host has" in running.exhausted[0]
    assert (running.isolating, running.broken, running.collected.answers) == ([], [], [])
    assert not running.stream.can_change_owner
    with pytest.raises(FeedClosed):
        running.put("next", [{"id": 2, "name": "2"}])


class FailsAlways:
    """Evaluates like a query for which every row now fails."""

    def __init__(self, *_: object) -> None:
        pass

    def results(self, rows: pa.RecordBatch) -> pa.Table:
        raise PySparkException(f"no engine for {rows.num_rows} rows")


def test_a_query_that_fails_without_rows_is_broken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engines.isolation.isolation.Verdicts", FailsAlways)
    running = bench.open(CAST)
    running.put("bad", rows_of({1}, 3))
    assert running.told_broken.wait(DEADLINE_S)
    assert running.broken == ["the query fails even without rows: no engine for 0 rows"]
    assert running.collected.answers == []


def test_a_run_that_takes_too_long_breaks_the_query_and_is_not_dropped(bench: Bench) -> None:
    running = bench.open(CAST, run_s=0.01)
    running.put("bad", rows_of(some(20)))
    assert running.told_broken.wait(DEADLINE_S)
    assert "took more than" in running.broken[0]
    assert running.collected.answers == []


def test_runs_of_an_earlier_owner_are_forgotten_and_closing_waits_for_nothing(bench: Bench) -> None:
    before = set(threading.enumerate())
    running = bench.open(CAST, max_batch_runs=1)
    running.put("gone", rows_of(set(range(ROWS))))
    wait(lambda: running.isolating == ["gone"])
    running.stream.drop_waiting()
    running.put("mine", rows_of({1}, 3))
    assert running.results(1)["mine"] == [{"id": 0, "n": 0}, {"id": 2, "n": 2}]
    running.put("last", rows_of(set(range(ROWS))))
    wait(lambda: running.isolating == ["gone", "mine", "last"])
    (thread,) = [each for each in set(threading.enumerate()) - before if each.name == "isolate-q"]
    began_s = time.monotonic()
    running.stream.close()
    assert time.monotonic() - began_s < SOON_S
    assert not thread.is_alive()
    assert len(running.collected.answers) == 1
