from __future__ import annotations

import asyncio

import pytest

from gateway.core.exchange.instructions import Pack, Send
from gateway.query.flow.lane import NO_BATCH
from infra.messages import Poison, Predicate, QueryFailed
from tests.query.lane_site import Owner, running
from tests.support.gateway_doubles import FakeHost, ManualClock, events
from tests.support.waiting import until

EVEN_TEXT = Predicate(op="ends_with", column=("text",), value="0")


async def test_a_run_goes_out_and_its_answer_comes_back() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        owner.put(5, 9)
        await until(lambda: len(host.runs) == 1)
        assert lane.open_runs == 1
        (message,) = host.runs
        assert (message.first_seq, message.last_seq, message.attempt, message.rows) == (5, 9, 1, 5)
        assert host.rows_of(message) == events(5, 9).to_pylist()
        assert owner.sent == [(5, owner.sent[0][1], len(host.payload_of(message)))]
        host.answer(5, 9, [5, 7])
        await until(lambda: len(owner.answers) == 1)
        assert [row["id"] for row in owner.answers[0].results.to_pylist()] == [5, 7]
        assert owner.open_runs == lane.open_runs == 0


async def test_a_lane_that_was_taken_out_says_nothing_more() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        owner.put(0, 4)
        await until(lambda: len(host.runs) == 1)
        lane.close()
        host.answer(0, 4)
        host.link.say(QueryFailed(query="q", epoch=1, reason="too many", broken=True))
        host.link.lose("cut")
        assert await host.connection.lost() == "cut"
    assert (owner.answers, owner.broken, owner.open_runs) == ([], [], 1)


async def test_no_more_bytes_are_sent_than_the_host_gives_credit_for() -> None:
    probe = FakeHost("probe")
    owner = Owner()
    async with running(probe, owner):
        owner.put(0, 9)
        await until(lambda: len(probe.runs) == 1)
        size = len(probe.payload_of(probe.runs[0]))
    host, owner = FakeHost("vm1", credit_bytes=int(1.5 * size)), Owner()
    async with running(host, owner):
        owner.put(0, 9)
        owner.put(10, 19)
        await until(lambda: len(owner.sent) == 2)
        await host.all_heard()
        assert [message.first_seq for message in host.runs] == [0], "the other is packed, and waits for credit"
        host.consume(host.runs[0])
        await until(lambda: len(host.runs) == 2)


async def test_a_run_larger_than_all_credit_goes_alone() -> None:
    host, owner = FakeHost("vm1", credit_bytes=10), Owner()
    async with running(host, owner):
        owner.put(0, 99)
        owner.put(100, 199)
        await until(lambda: len(host.runs) == 1)
        await host.all_heard()
        assert [type(order) for order in owner.orders] == [Pack, Send], "the other is not even packed"
        assert len(host.runs) == 1
        host.consume(host.runs[0])
        await until(lambda: len(host.runs) == 2)


async def test_only_rows_that_pass_are_sent_and_a_run_without_any_is_answered_here() -> None:
    host, owner = FakeHost("vm1", predicates=(EVEN_TEXT,)), Owner()
    async with running(host, owner):
        owner.put(1, 9)
        await until(lambda: len(owner.answers) == 1)
        assert host.runs == []
        answer = owner.answers[0]
        assert (answer.first_seq, answer.last_seq, answer.batch_id, answer.results.num_rows) == (1, 9, NO_BATCH, 0)
        assert owner.sent[0][2] == 0
        assert owner.open_runs == 0
        owner.put(10, 29)
        await until(lambda: len(host.runs) == 1)
        assert [row["id"] for row in host.rows_of(host.runs[0])] == [10, 20]
        assert host.runs[0].rows == 2


async def test_a_row_at_fault_is_told_by_its_seq_also_when_rows_before_it_were_left_out() -> None:
    host, owner = FakeHost("vm1", predicates=(EVEN_TEXT,)), Owner()
    async with running(host, owner):
        owner.put(5, 34)
        await until(lambda: len(host.runs) == 1)
        host.answer(5, 34, [10, 30], poison=[Poison(row=1, reason="boom")])
        await until(lambda: len(owner.answers) == 1)
        assert owner.answers[0].poison == ((20, "boom"),)


async def test_late_rows_are_told_by_their_seqs_over_all_runs_of_an_answer() -> None:
    host, owner = FakeHost("home"), Owner()
    async with running(host, owner):
        owner.put(5, 9)
        owner.put(10, 14)
        await until(lambda: len(host.runs) == 2)
        host.answer(5, 14, [], late=bytes([0b10000100, 0b01000000]), watermark_ms=7)
        await until(lambda: len(owner.answers) == 1)
        assert (owner.answers[0].late, owner.answers[0].watermark_ms) == ((5, 10, 14), 7)


async def test_a_late_row_that_does_not_exist_ends_the_link() -> None:
    host, owner = FakeHost("home"), Owner()
    async with running(host, owner):
        owner.put(0, 4)
        await until(lambda: len(host.runs) == 1)
        host.answer(0, 4, [], late=bytes([0b00000100]))
        assert "not among the 5 rows" in await host.connection.lost()
    assert owner.answers == []


@pytest.mark.parametrize("row", [-1, 5])
async def test_a_row_at_fault_that_does_not_exist_ends_the_link(row: int) -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        owner.put(0, 4)
        await until(lambda: len(host.runs) == 1)
        host.answer(0, 4, [], poison=[Poison(row=row, reason="boom")])
        assert "not among the 5 rows" in await host.connection.lost()
    assert owner.answers == []


async def test_results_that_cannot_be_read_end_the_link() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        owner.put(0, 4)
        await until(lambda: len(host.runs) == 1)
        host.answer(0, 4, payload=b"rubbish")
        assert "an invalid message" in await host.connection.lost()
    assert owner.answers == []


async def test_more_credit_than_was_used_ends_the_link() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        owner.put(0, 4)
        await until(lambda: len(host.runs) == 1)
        host.consume(host.runs[0])
        host.consume(host.runs[0])
        assert "bytes were consumed" in await host.connection.lost()


async def test_a_lost_link_ends_sending_quietly() -> None:
    host, owner = FakeHost("vm1"), Owner()
    lane = host.lane(owner, ManualClock())
    sender = asyncio.create_task(lane.run())
    owner.open(lane)
    host.link.lose("cut")
    owner.put(0, 4)
    await asyncio.wait_for(sender, 10)
    assert owner.open_runs == 1
    await host.connection.close("test over")


async def test_a_query_that_fails_at_the_host_is_told() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        host.link.say(QueryFailed(query="q", epoch=1, reason="out of memory"))
        await until(lambda: len(owner.failed) == 1)
    assert owner.failed == [("vm1", "out of memory")]


async def test_a_query_that_is_at_fault_itself_is_no_failure_of_its_lane() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        host.link.say(QueryFailed(query="q", epoch=1, reason="too many", broken=True))
        await until(lambda: owner.broken == ["too many"])
        host.link.say(QueryFailed(query="q", epoch=1, reason="out of memory", exhausted=True))
        await until(lambda: owner.exhausted == ["out of memory"])
        assert owner.failed == []
