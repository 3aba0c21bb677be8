"""Each result row belongs to the run of its event, empty runs are answered, and bad rows stop no other run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from engines.stateless import StatelessStream
from infra.messages import NAME_OFFSET, NAME_PARTITION, NAME_TOPIC
from tests.engines.stream_bench import Bench

pytestmark = pytest.mark.spark


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}"} for number in range(first, first + count)]


def put_all(running: Any, runs: Sequence[tuple[int, int]]) -> None:
    for first, count in runs:
        running.put((first, count), rows(first, count))


QUERIES = {
    "projection": "SELECT id, upper(name) AS name FROM events",
    "filter": "SELECT id FROM events WHERE id % 3 = 0",
    "explode": "SELECT id, part FROM events LATERAL VIEW explode(split(name, '')) AS part",
    "broadcast join": "SELECT id, v.s FROM events JOIN (VALUES (1, 'a'), (2, 'b')) v(k, s) ON id % 5 = v.k",
    "union all": "SELECT id, 1 AS side FROM events UNION ALL SELECT id, 2 FROM events WHERE id % 2 = 0",
    "coalesce": "SELECT /*+ COALESCE(1) */ id FROM events",
    "repartition": "SELECT /*+ REPARTITION(3) */ id FROM events",
    "nothing left": "SELECT id FROM events WHERE name = 'nobody'",
}


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES.keys())
def test_every_row_names_its_run_and_empty_runs_are_answered(bench: Bench, sql: str) -> None:
    running = bench.open(sql)
    runs = [(0, 7), (7, 0), (8, 1), (9, 40), (49, 0), (50, 3), (53, 20), (73, 0)]
    put_all(running, runs)
    found = running.results(len(runs))
    assert set(found) == set(runs)
    for first, count in runs:
        expected = bench.batch(sql, rows(first, count))
        assert sorted(map(str, found[first, count])) == sorted(map(str, expected)), (first, count)


def test_a_narrow_query_takes_several_runs_a_batch_and_another_one(bench: Bench) -> None:
    narrow = bench.open("SELECT id FROM events", max_batch_runs=4)
    wide = bench.open(QUERIES["union all"], max_batch_runs=4)
    for running in (narrow, wide):
        put_all(running, [(each * 10, 10) for each in range(12)])
        running.results(12)
    batches = [len({answer.batch_id for answer in running.collected.answers}) for running in (narrow, wide)]
    assert batches[0] < 12
    assert batches[1] == 12


def test_runs_share_a_batch_also_if_results_name_their_events(bench: Bench) -> None:
    running = bench.open("SELECT id FROM events", max_batch_runs=4, names_events=True)
    for first in range(0, 120, 10):
        named = [row | {NAME_TOPIC: "t", NAME_PARTITION: 3, NAME_OFFSET: row["id"]} for row in rows(first, 10)]
        running.put((first, 10), named)
    found = running.results(12)
    for (first, _), results in found.items():
        wanted = [
            {"id": each, NAME_TOPIC: "t", NAME_PARTITION: 3, NAME_OFFSET: each} for each in range(first, first + 10)
        ]
        assert results == wanted
    assert len({answer.batch_id for answer in running.collected.answers}) < 12


def test_rows_keep_their_order_within_a_run(bench: Bench) -> None:
    running = bench.open("SELECT id FROM events WHERE id % 2 = 1")
    put_all(running, [(0, 5_000), (5_000, 5_000)])
    found = running.results(2)
    assert [row["id"] for row in found[5_000, 5_000]] == list(range(5_001, 10_000, 2))


def test_a_large_run_becomes_several_partitions_and_stays_one_run(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = bench.open("SELECT id FROM events")
    batch = running.batch_of(rows(0, 1_000))
    from engines.streaming.feed import pack

    parts = pack(batch, part_bytes=4_096)
    assert len(parts) > 2
    assert isinstance(running.stream, StatelessStream)
    running.stream.put(parts, "large")
    running.put("small", rows(1_000, 5))
    found = running.results(2)
    assert [row["id"] for row in found["large"]] == list(range(1_000))
    assert [row["id"] for row in found["small"]] == list(range(1_000, 1_005))


@pytest.mark.parametrize("bad", [{500}, {0, 617, 999}, set()], ids=["one", "three", "none"])
def test_poison_is_found_and_everything_else_answered(bench: Bench, bad: set[int]) -> None:
    running = bench.open("SELECT CAST(name AS INT) + id AS n FROM events", max_batch_runs=3)
    poisoned = [{"id": 1, "name": "x" if row in bad else str(row)} for row in range(1_000)]
    running.put("before", [{"id": 1, "name": "41"}])
    running.put("poisoned", poisoned)
    running.put("after", [{"id": 2, "name": "1"}])
    found = running.results(3)
    assert found["before"] == [{"n": 42}]
    assert found["after"] == [{"n": 3}]
    assert found["poisoned"] == [{"n": row + 1} for row in range(1_000) if row not in bad]
    poison = [p for answer in running.collected.answers for p in answer.poison if answer.items[0].tag == "poisoned"]
    assert [each.row for each in poison] == sorted(bad)
    assert all("CAST_INVALID_INPUT" in each.reason and len(each.reason) <= 500 for each in poison)
    running.put("later", [{"id": 0, "name": "5"}])
    assert running.results(4)["later"] == [{"n": 5}]


def test_views_belong_to_their_query_and_bad_rows_are_found_through_them(bench: Bench) -> None:
    doubled = bench.open(
        "CREATE TEMP VIEW few AS SELECT id, CAST(name AS INT) AS n FROM events; SELECT id, n * 2 FROM few"
    )
    odd = bench.open(
        "CREATE TEMP VIEW some AS SELECT id FROM events WHERE id > 1; "
        "CREATE TEMP VIEW few (number) AS SELECT id FROM some WHERE id % 2 = 1; SELECT number FROM few;"
    )
    events = [{"id": number, "name": "bad" if number == 2 else str(number)} for number in range(6)]
    for running in (doubled, odd):
        running.put("one", events)
        running.put("two", events[:2])
    of_two = [{"id": 0, "(n * 2)": 0}, {"id": 1, "(n * 2)": 2}]
    rest = [{"id": number, "(n * 2)": 2 * number} for number in (3, 4, 5)]
    assert doubled.results(2) == {"one": of_two + rest, "two": of_two}
    assert {answer.items[0].tag: [bad.row for bad in answer.poison] for answer in doubled.collected.answers} == {
        "one": [2],
        "two": [],
    }
    assert odd.results(2) == {"one": [{"number": 3}, {"number": 5}], "two": []}
