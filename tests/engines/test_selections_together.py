"""Several runs with selections share a micro-batch, and each gets the results of its own selections."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from infra.messages import SelectionRule
from tests.engines.stream_bench import Bench, Running

pytestmark = pytest.mark.spark

RULE = SelectionRule(column="", each_ms=0, each_events=1, after_ms=0, events=3, most_events=100, most_open=100)
SUMS = "SELECT selection, sum(CAST(name AS INT)) AS total FROM events GROUP BY selection"
RUNS = [5, 0, 3, 1, 4, 2, 7, 6, 9, 8, 11, 10]


class Tag(NamedTuple):
    """What an engine host knows of a run: the numbers of its first and its last selection."""

    name: str
    selections: tuple[int, int]


def put(running: Running, number: int, name: str = "run", bad: str = "") -> Tag:
    """Put a run of three selections with two events each."""
    first = 3 * number
    tag = Tag(f"{name}{number}", (first, first + 2))
    running.put(
        tag,
        [{"id": n, "name": bad or str(number), "selection": first + n // 2} for n in range(6)],
    )
    return tag


def sums(number: int) -> list[dict[str, Any]]:
    return [{"selection": 3 * number + each, "total": 2 * number} for each in range(3)]


def batches(running: Running) -> int:
    return len({answer.batch_id for answer in running.collected.answers})


def test_each_run_gets_the_results_of_its_selections(bench: Bench) -> None:
    running = bench.open(SUMS, selections=RULE, max_batch_runs=8)
    tags = [put(running, number) for number in RUNS]
    assert running.results(len(RUNS)) == {tag: sums(number) for tag, number in zip(tags, RUNS, strict=True)}
    assert batches(running) < len(RUNS)


def test_a_run_that_comes_twice_is_not_in_one_micro_batch_with_itself(bench: Bench) -> None:
    running = bench.open(SUMS, selections=RULE, max_batch_runs=8)
    tags = [put(running, number, name) for number in (1, 2) for name in ("first", "again")]
    found = running.results(4)
    assert [found[tag] for tag in tags] == [sums(1), sums(1), sums(2), sums(2)]


def test_a_bad_row_stops_no_other_run(bench: Bench) -> None:
    running = bench.open(SUMS, selections=RULE, max_batch_runs=8)
    good = [put(running, number) for number in (1, 3)]
    bad = put(running, 2, bad="x")
    found = running.results(3)
    assert [found[tag] for tag in (*good, bad)] == [sums(1), sums(3), []]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT selection + 1 AS selection, count(*) AS total FROM events GROUP BY selection",
        """
        SELECT b.selection, a.id AS total FROM events a
        LEFT JOIN (SELECT * FROM events WHERE id > 3) b ON a.selection = b.selection AND a.id = b.id
        """,
    ],
)
def test_results_that_name_other_selections_are_those_of_their_run(bench: Bench, sql: str) -> None:
    running = bench.open(sql, selections=RULE, max_batch_runs=8)
    alone = bench.open(sql, selections=RULE, max_batch_runs=1)
    tags = [put(running, number) for number in RUNS]
    assert [put(alone, number) for number in RUNS] == tags
    assert running.results(len(RUNS)) == alone.results(len(RUNS))
    assert any(rows for rows in running.results(len(RUNS)).values())
