"""Runs in which a host finds bad rows: what is completed, what breaks the query, and what counts as latency."""

from __future__ import annotations

import json
from pathlib import Path

from infra.messages import IsolatingMessage, Poison, QueryFailed
from policies.signals import HOME
from tests.query.pipeline_site import Query, query
from tests.support.waiting import until

__all__ = ["query"]


async def test_a_run_of_which_too_many_rows_fail_is_not_completed_and_the_query_is_broken(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        for first in range(0, 2000, 500):
            query.offer(first, first + 499)
        await until(lambda: len(home.runs) == 2)
        bad = [Poison(row=i, reason=f"bad {i}") for i in range(150)]
        home.answer(0, 499, range(150, 500), poison=bad)
        await until(lambda: query.pipeline.committed_before == 500, query.clock, 0.1)
        home.answer(500, 999, range(650, 1000), poison=bad)
        await until(lambda: bool(query.broken))
        await query.pass_time(3.0)
        assert query.pipeline.committed_before == 500
        assert not query.pipeline.idle
        for said in ("more than 200 of 1,000 rows", "bad 0", "dead_letters.most"):
            assert said in query.broken[0]
    assert query.ids() == [*range(150, 500)]
    assert query.letters.count == 150


async def test_a_host_that_finds_the_query_at_fault_breaks_it_not_its_lane(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        home.link.say(QueryFailed(query="q", epoch=1, reason="the query fails even without rows", broken=True))
        await until(lambda: query.broken == ["the query fails even without rows"])
        assert query.failed == []


async def test_a_run_that_is_isolated_is_no_latency_by_which_a_vm_is_rented_but_is_delivered_late(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.link.say(IsolatingMessage(query="q", epoch=1, first_seq=0))
        await until(lambda: query.pipeline.isolating_s > 0, query.clock, 0.1)
        query.clock.advance(50.0)
        query.pipeline.end_slot(None, 0)
        (slot,) = query.profiler.end_slot(query.clock.now())
        home.answer(0, 9, [1])
        await query.all_committed()
        (after,) = query.profiler.end_slot(query.clock.now())
        assert (slot.latency_s, after.latency_s) == (0.0, 0.0)
        assert query.pipeline.tally.latency.mean_s >= 50.0
        assert query.pipeline.tally.delivery.mean_s >= 50.0


async def test_bad_rows_of_a_stateful_query_are_counted_over_all_runs_of_the_answer(tmp_path: Path) -> None:
    query = Query(tmp_path, stateful=True)
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 29)
        await until(lambda: len(home.runs) == 2)
        home.answer(
            0,
            29,
            [seq for seq in range(30) if seq not in {3, 10, 29}],
            poison=[Poison(row=row, reason=f"bad {row}") for row in (3, 10, 29)],
        )
        await query.all_committed()
    assert query.ids() == [seq for seq in range(30) if seq not in {3, 10, 29}]
    letters = [json.loads(line) for line in (tmp_path / "dead.jsonl").read_text().splitlines()]
    assert [(letter["seq"], letter["reason"]) for letter in letters] == [(3, "bad 3"), (10, "bad 10"), (29, "bad 29")]
