"""Answers are lost, doubled and reordered, and some lanes answer nothing: every run counts once, in order."""

from __future__ import annotations

import asyncio
import logging
import random
from pathlib import Path

import pytest

from gateway.query.flow.dispatcher import Loss
from infra.messages import Poison
from policies.signals import HOME
from tests.query.pipeline_site import Query, query
from tests.support.gateway_doubles import FakeHost
from tests.support.waiting import until

__all__ = ["query"]


async def misbehave(host: FakeHost, chance: random.Random, part: float) -> None:
    """Answer each run, but lose, double or delay a part of the answers."""
    served = 0
    held: list[tuple[int, int]] = []
    while True:
        await asyncio.sleep(0.001)
        for run in host.runs[served:]:
            host.consume(run)
            answer = (run.first_seq, run.last_seq)
            dice = chance.random() / part
            if dice < 1:
                continue
            if dice < 2:
                held.append(answer)
                continue
            for _ in range(2 if dice < 3 else 1):
                host.answer(*answer)
        served = len(host.runs)
        if held and chance.random() < 0.2:
            host.answer(*held.pop(chance.randrange(len(held))))


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_answers_that_are_lost_doubled_and_reordered_leave_every_result_once_and_in_order(
    tmp_path: Path, seed: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"seed {seed}")
    chance, query = random.Random(seed), Query(tmp_path, flush_s=None)
    async with query.running():
        tasks: dict[str, asyncio.Task[None]] = {}

        def begin(lane: str) -> None:
            tasks[lane] = asyncio.create_task(misbehave(query.add_host(lane), chance, 0.2))

        begin(HOME)
        begin("vm1")
        query.pipeline.set_shares({HOME: 0.5, "vm1": 0.5})
        for first in range(0, 1000, 10):
            query.offer(first, first + 9)
        while not query.pipeline.idle:
            query.pipeline.end_slot(None, 0)
            for lane in {lane for lane, _ in query.failed}:  # none of its last answers came
                tasks.pop(lane).cancel()
                await query.pipeline.remove_lane(lane)
                begin(lane)
            query.failed.clear()
            before_s = query.clock.now()
            await until(lambda before_s=before_s: query.clock.now() > before_s + 0.9, query.clock, 0.5)  # type: ignore[misc]
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        assert query.memory.held_bytes == 0
        assert query.pipeline.idle
        assert max(run.attempt for host in query.all_hosts for run in host.runs) > 1
    assert query.ids() == [*range(1000)]


async def lose_answers_of(query: Query, cloud: FakeHost) -> None:
    """Let runs 0 and 10 become overdue in a cloud lane that has answered before."""
    query.pipeline.set_shares({HOME: 0.0, cloud.name: 1.0})
    query.offer(0, 9)
    await until(lambda: len(cloud.runs) == 1)
    cloud.answer(0, 9)
    await until(lambda: query.pipeline.lane_idle(cloud.name))
    query.offer(10, 19)
    query.offer(20, 29)
    await until(lambda: len(cloud.runs) == 3)
    query.clock.advance(9.0)
    query.pipeline.end_slot(None, 0)
    assert not query.pipeline.lane_idle(cloud.name)
    query.clock.advance(2.0)
    query.pipeline.end_slot(None, 0)
    assert query.pipeline.lane_idle(cloud.name)


async def test_an_overdue_run_goes_to_another_lane_and_a_late_answer_with_a_row_at_fault_counts_if_it_is_first(
    query: Query,
) -> None:
    async with query.running():
        home, cloud = query.add_host(HOME), query.add_host("vm1")
        await lose_answers_of(query, cloud)
        await until(lambda: len(home.runs) == 2)
        assert [(run.first_seq, run.attempt) for run in home.runs] == [(10, 2), (20, 2)]
        home.answer(10, 19)
        cloud.answer(20, 29, [i for i in range(20, 30) if i != 25], poison=[Poison(row=5, reason="boom")])
        await query.all_committed()
        home.answer(20, 29)
        cloud.answer(10, 19)
        await home.all_heard()
        await cloud.all_heard()
        assert [host.link.closed_with for host in (home, cloud)] == [None, None]
        assert query.memory.held_bytes == 0
    assert query.ids() == [i for i in range(30) if i != 25]
    assert [row["lane"] for row in query.rows()] == ["vm1"] * 10 + [HOME] * 10 + ["vm1"] * 9
    assert b"boom" in (query.folder / "dead.jsonl").read_bytes()


async def test_without_another_lane_the_same_one_is_asked_again(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        query.clock.advance(121.0)
        query.pipeline.end_slot(None, 0)
        await until(lambda: len(home.runs) == 2)
        assert [run.attempt for run in home.runs] == [1, 2]
        home.consume(home.runs[0])
        home.consume(home.runs[1])
        home.answer(0, 9)
        home.answer(0, 9)
        await query.all_committed()
    assert query.ids() == [*range(10)]


async def test_a_lane_that_takes_runs_again_and_again_and_completes_none_is_given_up(query: Query) -> None:
    async with query.running():
        home, cloud = query.add_host(HOME), query.add_host("vm1")
        await lose_answers_of(query, cloud)
        for given in range(2, 40, 2):
            await until(lambda given=given: len(home.runs) >= given)  # type: ignore[misc]
            for run in home.runs[given - 2 :]:
                home.answer(run.first_seq, run.last_seq)
            await until(lambda: query.pipeline.idle, query.clock, 0.01)
            if query.failed:
                break
            first = 10 * given + 10
            query.offer(first, first + 9)
            query.offer(first + 10, first + 19)
            await until(lambda given=given: len(cloud.runs) == given + 3)  # type: ignore[misc]
            query.clock.advance(11.0)
            query.pipeline.end_slot(None, 0)
        assert {lane for lane, _ in query.failed} == {"vm1"}
        assert "got no answer for" in query.failed[0][1]
        assert len(cloud.runs) <= 9, "three rounds of two runs, and not more"


async def test_a_lane_whose_credit_was_lost_is_given_up(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME, credit_bytes=10)
        query.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.answer(0, 9)
        await until(lambda: query.pipeline.lane_idle(HOME))
        query.offer(10, 19)
        query.clock.advance(29.0)
        query.pipeline.end_slot(None, 0)
        assert query.failed == []
        query.clock.advance(2.0)
        query.pipeline.end_slot(None, 0)
        assert [lane for lane, _ in query.failed] == [HOME]
        assert len(home.runs) == 1


async def test_the_log_says_how_long_the_runs_of_a_lost_lane_took_to_go_elsewhere(
    query: Query, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with query.running():
        cloud = query.add_host("vm1")
        query.pipeline.set_shares({HOME: 0.0, "vm1": 1.0})
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(cloud.runs) == 2)
        loss = Loss("kill -9", query.clock.now())
        query.pipeline.set_shares({HOME: 1.0})
        await query.pipeline.remove_lane("vm1", loss)
        assert not [record for record in caplog.records if "go elsewhere" in record.getMessage()]
        query.clock.advance(0.25)
        home = query.add_host(HOME)
        await until(lambda: len(home.runs) == 2)
        (said,) = [text for text in caplog.messages if "go elsewhere" in text]
        assert said == "lane vm1 lost (kill -9): 2 runs go elsewhere after 250 ms, the last after 250 ms (q)"
        home.answer(0, 9)
        home.answer(10, 19)
        await query.all_committed()
