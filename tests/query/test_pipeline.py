from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path

import msgspec
import pytest

from gateway.journal.deadletters import DeadLetter
from gateway.query.flow.dispatcher import Loss
from infra.messages import AnyMessage, Poison
from policies.signals import HOME
from tests.query.pipeline_site import Query, query, serving
from tests.support.file_parts import parts
from tests.support.gateway_doubles import events
from tests.support.waiting import until

__all__ = ["query"]


async def test_from_offer_to_sink_at_home(query: Query) -> None:
    async with query.running(), serving(query.add_host(HOME)):
        for first in range(0, 50, 10):
            query.offer(first, first + 9)
        await query.all_committed()
        assert query.ids() == [*range(50)]
        assert query.memory.held_bytes == 0
        assert query.committed[-1] == 49
        assert query.log.runs == []
        assert (query.pipeline.tally.events, query.pipeline.tally.results) == (50, 50)
        assert query.pipeline.tally.events_by_lane == {HOME: 50}
        assert query.pipeline.tally.raw_bytes == 0, "home is no WAN"


async def test_a_cloud_lane_gets_its_share_and_results_stay_in_order(query: Query) -> None:
    async with query.running(), serving(query.add_host(HOME), query.add_host("vm1")):
        query.pipeline.set_shares({HOME: 0.5, "vm1": 0.5})
        for first in range(0, 400, 10):
            query.offer(first, first + 9)
            await asyncio.sleep(0)
        await query.all_committed()
    assert query.ids() == [*range(400)]
    assert {row["lane"] for row in query.rows()} == {HOME, "vm1"}
    assert query.pipeline.tally.sent_bytes > 0
    assert query.pipeline.tally.raw_bytes > 0


async def test_until_shares_name_it_a_cloud_lane_gets_nothing(query: Query) -> None:
    async with query.running(), serving(query.add_host(HOME)):
        cloud = query.add_host("vm1")
        for first in range(0, 100, 10):
            query.offer(first, first + 9)
        await query.all_committed()
        assert cloud.runs == []


async def test_runs_wait_when_there_is_no_lane(query: Query) -> None:
    async with query.running():
        query.offer(0, 9)
        assert not query.pipeline.idle
        async with serving(query.add_host(HOME)):
            await query.all_committed()
    assert query.ids() == [*range(10)]


async def test_runs_of_a_lane_that_is_taken_out_go_elsewhere_and_its_late_answers_are_dropped(query: Query) -> None:
    async with query.running():
        cloud = query.add_host("vm1")
        query.pipeline.set_shares({HOME: 0.0, "vm1": 1.0})
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(cloud.runs) == 2)
        cloud.answer(0, 9)
        await until(lambda: query.memory.held_bytes < events(0, 19).nbytes)
        await query.pipeline.remove_lane("vm1")
        assert query.pipeline.lane_idle("vm1")
        cloud.answer(10, 19)
        home = query.add_host(HOME)
        query.pipeline.set_shares({HOME: 1.0})
        await until(lambda: len(home.runs) == 1)
        assert (home.runs[0].first_seq, home.runs[0].attempt) == (10, 2)
        cloud.answer(10, 19)
        await cloud.all_heard()
        assert not query.pipeline.idle
        home.answer(10, 19)
        await query.all_committed()
        assert cloud.link.closed_with is None, "an answer that comes late is no offence"
        assert query.memory.held_bytes == 0
    assert [row["lane"] for row in query.rows()] == ["vm1"] * 10 + [HOME] * 10
    assert query.ids() == [*range(20)]


async def test_an_answer_that_comes_twice_is_dropped(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 2)
        home.answer(0, 9)
        home.answer(0, 9)
        home.answer(10, 19)
        await query.all_committed()
        assert query.memory.held_bytes == 0
    assert query.ids() == [*range(20)]
    assert query.pipeline.tally.results == 20


async def test_an_answer_for_what_was_never_sent_loses_the_link_only(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.answer(50, 59)
        assert "no runs that are open" in await home.connection.lost()
        await query.pipeline.remove_lane(HOME)
        async with serving(query.add_host(HOME)):
            await query.all_committed()
    assert query.ids() == [*range(10)]


async def test_the_share_of_a_lane_that_is_away_is_home_s_until_it_is_back(query: Query) -> None:
    async with query.running():
        home, cloud = query.add_host(HOME), query.add_host("vm1")
        query.pipeline.set_shares({HOME: 0.0, "vm1": 1.0})
        async with serving(home, cloud):
            query.offer(0, 9)
            await query.all_committed()
            await query.pipeline.remove_lane("vm1")
            assert query.pipeline.cloud_share == 0
            query.offer(10, 19)
            await query.all_committed()
        back = query.add_host("vm1")
        assert query.pipeline.cloud_share == 1
        async with serving(home, back):
            query.offer(20, 29)
            await query.all_committed()
    assert [[run.first_seq for run in host.runs] for host in (home, cloud, back)] == [[10], [0], [20]]
    assert query.ids() == [*range(30)]


async def test_while_home_is_lost_its_share_is_the_cloud_lanes(query: Query) -> None:
    async with query.running():
        home, *cloud = query.add_host(HOME), query.add_host("vm1"), query.add_host("vm2")
        query.pipeline.set_shares({HOME: 0.9, "vm1": 0.05, "vm2": 0.05})
        query.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        await query.pipeline.remove_lane(HOME, Loss("killed", query.clock.now()))
        assert query.pipeline.cloud_share == 1
        async with serving(*cloud):
            for first in range(10, 90, 10):
                query.offer(first, first + 9)
            await query.all_committed()
        # How many each gets depends on which has answered before.
        assert {len(host.runs) > 1 for host in cloud} == {True}
        query.add_host(HOME)
        assert query.pipeline.cloud_share == pytest.approx(0.1)
    assert query.ids() == [*range(90)]


async def test_what_may_not_leave_home_waits_for_its_return(query: Query) -> None:
    async with query.running():
        cloud = query.add_host("vm1")
        query.pipeline.set_shares({HOME: 0.9, "vm1": 0.1})
        query.offer(0, 9, disordered=True)
        async with serving(query.add_host(HOME)):
            await query.all_committed()
        assert cloud.runs == []


async def test_out_of_order_runs_and_stateful_queries_stay_home(query: Query, tmp_path: Path) -> None:
    stateful = Query(tmp_path / "stateful", stateful=True)
    for each, disordered in ((query, True), (stateful, False)):
        async with each.running():
            home, cloud = each.add_host(HOME), each.add_host("vm1")
            each.pipeline.set_shares({HOME: 0.0, "vm1": 1.0})
            async with serving(home, cloud):
                for first in range(0, 50, 10):
                    each.offer(first, first + 9, disordered=disordered)
                await each.all_committed()
            assert len(home.runs) == 5
            assert cloud.runs == []


async def test_one_answer_may_complete_several_runs_of_a_stateful_query(tmp_path: Path) -> None:
    query = Query(tmp_path, stateful=True)
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 2)
        home.answer(0, 19, [7])
        await query.all_committed()
        assert query.ids() == [7]
        assert query.memory.held_bytes == 0
        assert query.committed == [19]
        assert [run.first_seq for run in query.log.runs] == [0, 10], "the last batch may have to run again"
        query.offer(20, 29)
        await until(lambda: len(home.runs) == 3)
        home.answer(20, 29, [])
        await query.all_committed()
        assert [run.first_seq for run in query.log.runs] == [20]


async def test_a_batch_that_runs_again_after_a_restart_is_dropped_and_its_commit_is_told_again(tmp_path: Path) -> None:
    before = Query(tmp_path, stateful=True)
    async with before.running():
        home = before.add_host(HOME)
        before.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.answer(0, 9, [3])
        await before.all_committed()
    query = Query(tmp_path, stateful=True)
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.answer(0, 9, [3])
        await query.all_committed()
        assert query.committed == [9]
        assert query.memory.held_bytes == 0
    assert query.ids() == [3]


async def test_a_batch_that_was_planned_before_its_host_was_lost_gets_all_its_runs_at_once(tmp_path: Path) -> None:
    query = Query(tmp_path, stateful=True)
    async with query.running():
        home = query.add_host(HOME, resume_end_seq=80)
        for first in range(0, 120, 10):
            query.offer(first, first + 9)
        # Spark runs the batch 0-79 again as a whole, and answers nothing before it has it.
        await until(lambda: len(home.runs) == 8)
        home.answer(0, 79, [1])
        async with serving(home):
            await query.all_committed()
    assert query.ids() == [1, *range(80, 120)]


async def test_rows_at_fault_become_dead_letters_before_their_run_is_committed(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 2)
        home.answer(10, 19, [i for i in range(10, 20) if i != 12], poison=[Poison(row=2, reason="division by zero")])
        home.answer(0, 9)
        await query.all_committed()
    text = (query.folder / "dead.jsonl").read_bytes()
    letter = msgspec.json.decode(text, type=DeadLetter)
    assert (letter.reason, letter.raw, letter.seq) == ("division by zero", '{"id":12,"text":"event 12"}', 12)
    assert letter.at.startswith("2023-11-14T22:")
    assert query.ids() == [i for i in range(20) if i != 12]


async def test_rows_that_came_too_late_become_dead_letters_and_count_as_no_failure(tmp_path: Path) -> None:
    query = Query(tmp_path, stateful=True)
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 2)
        # Rows 3 to 19 of the micro-batch are bits after the third; more than dead_letters.most of them.
        late = bytes([0b00011111, 0b11111111, 0b11110000])
        poison = [Poison(row=1, reason="division by zero")]
        home.answer(0, 19, [0, 2], poison, too_late=17, late=late, watermark_ms=1_577_836_800_123)
        await query.all_committed()
        query.offer(20, 29)
        await until(lambda: len(home.runs) == 3)
        home.answer(20, 29)
        await query.all_committed()
    lines = (query.folder / "dead.jsonl").read_bytes().splitlines()
    letters = sorted((msgspec.json.decode(line, type=DeadLetter) for line in lines), key=lambda letter: letter.seq)
    assert [letter.seq for letter in letters] == [1, *range(3, 20)]
    assert letters[-1].raw == '{"id":19,"text":"event 19"}'
    assert {letter.reason for letter in letters[1:]} == {
        "it came too late: everything up to 2020-01-01T00:00:00.123Z was complete"
    }
    assert query.ids() == [0, 2, *range(20, 30)]


async def test_what_came_too_late_is_counted_once_and_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = Query(tmp_path, stateful=True)
    tally = query.pipeline.tally

    def logged() -> list[str]:
        return [record.getMessage() for record in caplog.records if "watermark" in record.getMessage()]

    async with query.running():
        home = query.add_host(HOME)
        for first, late in ((0, 3), (10, 0), (20, 4), (30, 5)):
            query.offer(first, first + 9)
            await until(lambda first=first: home.runs[-1:] and home.runs[-1].first_seq == first)  # type: ignore[misc]
            home.answer(first, first + 9, too_late=late, open_groups=first // 10)
            await query.all_committed()
        assert (tally.too_late, tally.open_groups) == (12, 3)
        said = "query q: 3 rows, or groups of rows, came later than its watermark allows and were dropped; 3 in all"
        assert logged() == [said]
        await query.pass_time(61.0)
        assert logged() == [said, said.replace(": 3", ": 9").replace("; 3", "; 12")]

        query.offer(40, 49)
        await until(lambda: home.runs[-1].first_seq == 40)
        home.answer(40, 49, too_late=1, open_groups=3)
        await query.all_committed()
        assert len(logged()) == 2
    assert logged()[2:] == [said.replace(": 3", ": 1").replace("; 3", "; 13")], "what is left is logged at the end"


async def test_what_a_gateway_before_had_delivered_is_not_counted(tmp_path: Path) -> None:
    before = Query(tmp_path, stateful=True)
    async with before.running():
        home = before.add_host(HOME)
        before.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.answer(0, 9, too_late=3, open_groups=1)
        await before.all_committed()
    now = Query(tmp_path, stateful=True)
    async with now.running():
        home = now.add_host(HOME)
        now.offer(0, 9)
        await until(lambda: len(home.runs) == 1)
        home.answer(0, 9, too_late=3, open_groups=1)
        await until(lambda: now.pipeline.tally.open_groups == 1)
    assert now.pipeline.tally.too_late == 0


async def test_a_sink_that_fails_loses_and_doubles_nothing(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 2)
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", full)
            home.answer(0, 9)
            await until(lambda: query.pipeline.trouble != "", query.clock, 0.1)
            assert not query.pipeline.idle
        home.answer(10, 19)
        await query.all_committed()
        assert not query.pipeline.trouble
    assert query.ids() == [*range(20)]


async def test_with_too_much_held_only_what_is_waited_for_goes_out(tmp_path: Path) -> None:
    query = Query(tmp_path, held_bytes_max=1)
    async with query.running():
        cloud = query.add_host("vm1")
        query.pipeline.set_shares({HOME: 0.0, "vm1": 1.0})
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(cloud.runs) == 2)
        cloud.answer(10, 19)
        await until(lambda: query.pipeline.tally.latency.weight == 10)
        query.offer(20, 29)
        assert query.pipeline.queued_runs(1) == 1, "what comes later would only be held as well"
        await cloud.all_heard()
        assert len(cloud.runs) == 2
        await query.pipeline.remove_lane("vm1")
        home = query.add_host(HOME)
        query.pipeline.set_shares({HOME: 1.0})
        await until(lambda: len(home.runs) == 1)
        assert home.runs[0].first_seq == 0
        async with serving(home):
            await query.all_committed()
    assert query.ids() == [*range(30)]


async def test_with_a_sink_that_takes_nothing_no_more_is_routed_than_may_be_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(tmp_path, held_bytes_max=1)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    home = query.add_host(HOME)
    async with query.running():
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", full)
            query.offer_unlogged(0, 9)
            await until(lambda: len(home.runs) == 1)
            home.answer(0, 9)
            await until(lambda: query.pipeline.trouble != "", query.clock, 0.1)
            query.offer_unlogged(10, 19)
            await query.pass_time(30.0)
            assert len(home.runs) == 1, "nothing is missing, and the sink holds what it may"
        async with serving(home):
            await query.all_committed()
    assert query.ids() == [*range(20)]


async def test_a_run_that_is_late_already_goes_out_although_much_is_held(
    query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with query.running():
        cloud = query.add_host("vm1")
        query.pipeline.set_shares({HOME: 0.0, "vm1": 1.0})
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(cloud.runs) == 2)
        cloud.answer(10, 19)
        await until(lambda: query.ids() == [*range(10, 20)], query.clock, 0.5)
        await query.pipeline.remove_lane("vm1")
        query.pipeline.set_shares({HOME: 1.0})
        async with serving(query.add_host(HOME)):
            await query.all_committed()
    assert query.ids() == [*range(10, 20), *range(10)]
    assert query.pipeline.tally.late_results == 10


async def test_a_lane_that_cannot_send_says_so(query: Query) -> None:
    async with query.running():
        home = query.add_host(HOME)

        async def refuse(message: AnyMessage, payload: bytes = b"") -> None:
            raise ValueError("the payload is larger than a frame")

        home.link.send = refuse  # type: ignore[method-assign]
        query.offer(0, 9)
        await until(lambda: bool(query.failed))
        assert query.failed == [(HOME, "a run cannot be sent: the payload is larger than a frame")]


async def test_what_was_not_completed_is_done_after_the_next_start(query: Query, tmp_path: Path) -> None:
    async with query.running():
        home = query.add_host(HOME)
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 2)
        home.answer(10, 19)
        await until(lambda: query.pipeline.tally.latency.weight == 10)
    assert query.ids() == []
    again = Query(tmp_path)
    assert [(run.first_seq, run.last_seq) for run in again.log.runs] == [(0, 9), (10, 19)]
    async with again.running(), serving(again.add_host(HOME)):
        again.offer(0, 9)
        again.offer(10, 19)
        await again.all_committed()
    assert again.ids() == [*range(20)]


async def test_a_slot_tells_the_profiler_what_waits(query: Query) -> None:
    async with query.running():
        query.offer(0, 9)
        query.clock.advance(3.0)
        query.pipeline.end_slot(query.clock.now() - 7.0, 25)
        (slot,) = query.profiler.end_slot(query.clock.now())
        assert slot.backlog_events == 35
        assert slot.latency_s == pytest.approx(7.0)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("ordered", [True, False])
async def test_whatever_lanes_do_each_result_comes_once_and_inversions_are_marked(
    tmp_path: Path, seed: int, ordered: bool
) -> None:
    """Lanes are added, answer in any order, twice, late, and are lost, while shares change."""
    dice = random.Random(seed)
    query = Query(tmp_path, flush_s=2.0 if ordered else None, ordered=ordered)
    answered: set[tuple[int, int]] = set()
    next_seq = 0

    def some_answer() -> None:
        host = dice.choice(query.all_hosts)
        if host.runs and host.link.closed_with is None:
            run = dice.choice(host.runs[-6:])
            if (id(host), run.first_seq) not in answered or dice.random() < 0.1:
                answered.add((id(host), run.first_seq))
                host.answer(run.first_seq, run.last_seq)

    async def change_lanes() -> None:
        name = dice.choice([HOME, "vm1", "vm2"])
        if name in query.hosts and dice.random() < 0.5:
            await query.pipeline.remove_lane(name)
            del query.hosts[name]
        elif name not in query.hosts:
            query.add_host(name)
        clouds = [name for name in query.hosts if name != HOME]
        share = dice.choice([0.0, 0.3, 1.0]) if clouds else 0.0
        query.pipeline.set_shares({HOME: 1 - share} | {name: share / len(clouds) for name in clouds})

    async with query.running():
        query.add_host(HOME)
        for _ in range(250):
            if dice.random() < 2 / 3:
                some_answer()
            if dice.random() < 0.3:
                size = dice.randint(1, 6)
                query.offer(next_seq, next_seq + size - 1)
                next_seq += size
            if dice.random() < 0.1:
                await change_lanes()
            query.clock.advance(dice.random() * 0.3)
            await asyncio.sleep(0.001)
        for name in list(query.hosts):
            await query.pipeline.remove_lane(name)
        query.pipeline.set_shares({HOME: 1.0})
        async with serving(query.add_host(HOME)):
            await query.all_committed()
        assert query.memory.held_bytes == 0
    assert query.failed == []
    assert sorted(query.ids()) == [*range(next_seq)]
    if ordered:
        on_time = [name for name in parts(query.folder / "out") if ".late." not in name]
        assert on_time == sorted(on_time, key=lambda name: name[11:23])
