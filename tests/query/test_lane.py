from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from gateway_doubles import FakeHost, ManualClock, events, until

from gateway.query.flow.lane import NO_BATCH, Answer, Lane
from gateway.query.flow.runbook import Run
from infra.messages import Isolating, Poison, Predicate, QueryFailed

EVEN_TEXT = Predicate(op="ends_with", column=("text",), value="0")


@dataclass
class Owner:
    """Writes down what it hears."""

    answers: list[Answer] = field(default_factory=list)
    sent: list[tuple[int, int, int]] = field(default_factory=list)
    failed: list[tuple[str, str]] = field(default_factory=list)
    isolating: list[int] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    rooms: int = 0

    def on_answer(self, answer: Answer) -> None:
        self.answers.append(answer)

    def on_sent(self, lane: str, run: Run, raw_bytes: int, sent_bytes: int) -> None:
        self.sent.append((run.first_seq, raw_bytes, sent_bytes))

    def on_room(self) -> None:
        self.rooms += 1

    def on_isolating(self, lane: str, first_seq: int) -> None:
        self.isolating.append(first_seq)

    def on_broken(self, reason: str) -> None:
        self.broken.append(reason)

    def on_failed(self, lane: str, reason: str) -> None:
        self.failed.append((lane, reason))


def run(first: int, last: int) -> Run:
    batch = events(first, last)
    return Run(first, last, batch, 0.0, batch.nbytes, attempt=1)


@asynccontextmanager
async def running(host: FakeHost, owner: Owner, clock: ManualClock | None = None) -> AsyncIterator[Lane]:
    lane = host.lane(owner, clock or ManualClock())
    sender = asyncio.create_task(lane.run())
    try:
        yield lane
    finally:
        sender.cancel()
        await asyncio.gather(sender, return_exceptions=True)
        await host.connection.close("test over")


async def test_a_run_goes_out_and_its_answer_comes_back() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        assert lane.idle
        lane.put(run(5, 9))
        await until(lambda: len(host.runs) == 1)
        (message,) = host.runs
        assert (message.first_seq, message.last_seq, message.attempt, message.rows) == (5, 9, 1, 5)
        assert host.rows_of(message) == events(5, 9).to_pylist()
        assert owner.sent == [(5, owner.sent[0][1], len(host.payload_of(message)))]
        assert (lane.open_events, lane.idle) == (5, False)
        host.answer(5, 9, [5, 7])
        await until(lambda: len(owner.answers) == 1)
        assert [row["id"] for row in owner.answers[0].results.to_pylist()] == [5, 7]
        assert lane.idle


async def test_no_more_bytes_are_sent_than_the_host_gives_credit_for() -> None:
    probe = FakeHost("probe")
    async with running(probe, Owner()) as lane:
        lane.put(run(0, 9))
        await until(lambda: len(probe.runs) == 1)
        size = len(probe.payload_of(probe.runs[0]))
    host, owner = FakeHost("vm1", credit_bytes=int(2.5 * size)), Owner()
    async with running(host, owner) as lane:
        for first in range(0, 100, 10):
            lane.put(run(first, first + 9))
        for consumed, sent in enumerate(range(2, 11)):
            await until(lambda sent=sent: len(host.runs) == sent)  # type: ignore[misc]
            await asyncio.sleep(0.01)
            assert len(host.runs) == sent
            host.consume(host.runs[consumed])
    assert [message.first_seq for message in host.runs] == [*range(0, 100, 10)]


async def test_a_run_larger_than_all_credit_goes_alone() -> None:
    host, owner = FakeHost("vm1", credit_bytes=10), Owner()
    async with running(host, owner) as lane:
        lane.put(run(0, 99))
        lane.put(run(100, 199))
        await until(lambda: len(host.runs) == 1)
        await asyncio.sleep(0.01)
        assert len(host.runs) == 1
        assert not lane.takes(run(200, 299))
        host.consume(host.runs[0])
        await until(lambda: len(host.runs) == 2)


async def test_only_rows_that_pass_are_sent_and_a_run_without_any_is_answered_here() -> None:
    host, owner = FakeHost("vm1", predicates=(EVEN_TEXT,)), Owner()
    async with running(host, owner) as lane:
        lane.put(run(1, 9))
        await until(lambda: len(owner.answers) == 1)
        assert host.runs == []
        answer = owner.answers[0]
        assert (answer.first_seq, answer.last_seq, answer.batch_id, answer.results.num_rows) == (1, 9, NO_BATCH, 0)
        assert owner.sent[0][2] == 0
        assert lane.idle
        lane.put(run(10, 29))
        await until(lambda: len(host.runs) == 1)
        assert [row["id"] for row in host.rows_of(host.runs[0])] == [10, 20]
        assert host.runs[0].rows == 2


async def test_a_row_at_fault_is_told_by_its_seq_also_when_rows_before_it_were_left_out() -> None:
    host, owner = FakeHost("vm1", predicates=(EVEN_TEXT,)), Owner()
    async with running(host, owner) as lane:
        lane.put(run(5, 34))
        await until(lambda: len(host.runs) == 1)
        host.answer(5, 34, [10, 30], poison=[Poison(row=1, reason="boom")])
        await until(lambda: len(owner.answers) == 1)
        assert owner.answers[0].poison == ((20, "boom"),)


@pytest.mark.parametrize("row", [-1, 5])
async def test_a_row_at_fault_that_does_not_exist_ends_the_link(row: int) -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        lane.put(run(0, 4))
        await until(lambda: len(host.runs) == 1)
        host.answer(0, 4, [], poison=[Poison(row=row, reason="boom")])
        assert "not among the 5 rows" in await host.connection.lost()
    assert owner.answers == []


async def test_results_that_cannot_be_read_end_the_link() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        lane.put(run(0, 4))
        await until(lambda: len(host.runs) == 1)
        host.answer(0, 4)
        message, _ = host.link._inbox.get_nowait()  # type: ignore[misc]
        host.link.say(message, b"rubbish")
        assert "cannot be believed" in await host.connection.lost()
    assert owner.answers == []


async def test_more_credit_than_was_used_ends_the_link() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        lane.put(run(0, 4))
        await until(lambda: len(host.runs) == 1)
        host.consume(host.runs[0])
        host.consume(host.runs[0])
        assert "given back" in await host.connection.lost()


async def test_a_lost_link_ends_sending_quietly() -> None:
    host, owner = FakeHost("vm1"), Owner()
    lane = host.lane(owner, ManualClock())
    sender = asyncio.create_task(lane.run())
    host.link.lose("cut")
    lane.put(run(0, 4))
    await asyncio.wait_for(sender, 10)
    assert lane.open_events == 5
    await host.connection.close("test over")


async def test_a_query_that_fails_at_the_host_is_told() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        host.link.say(QueryFailed(query="q", epoch=1, reason="out of memory"))
        await until(lambda: len(owner.failed) == 1)
    assert owner.failed == [("vm1", "out of memory")]


async def test_room_is_two_runs_until_the_rate_is_known_and_then_what_keeps_the_engine_busy() -> None:
    host, owner, clock = FakeHost("vm1"), Owner(), ManualClock()
    async with running(host, owner, clock) as lane:
        assert lane.has_room
        lane.put(run(0, 99))
        assert lane.has_room
        lane.put(run(100, 199))
        await until(lambda: len(host.runs) == 2)
        assert not lane.has_room
        clock.advance(0.5)
        host.answer(0, 99)
        host.answer(100, 199)
        await until(lambda: lane.idle)
        assert lane.rate_per_s == pytest.approx(400)
        clock.advance(100.0)
        assert lane.rate_per_s == pytest.approx(400), "idle time does not count"
        for first in range(200, 1000, 100):
            await until(lambda first=first: len(host.runs) == first // 100)  # type: ignore[misc]
            if not lane.has_room:
                break
            lane.put(run(first, first + 99))
        assert lane.open_events == 600


async def test_answers_for_what_is_not_here_change_nothing_of_the_lane() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner) as lane:
        lane.put(run(0, 4))
        host.answer(50, 59)
        await until(lambda: len(owner.answers) == 1)
        assert lane.open_events == 5


async def test_a_run_that_is_isolated_is_open_but_takes_no_room_is_not_overdue_and_is_no_service() -> None:
    host, owner, clock = FakeHost("vm1"), Owner(), ManualClock()
    async with running(host, owner, clock) as lane:
        lane.put(run(0, 9))
        lane.put(run(10, 19))
        await until(lambda: len(host.runs) == 2)
        clock.advance(1.0)
        host.answer(10, 19)
        await until(lambda: len(owner.answers) == 1)
        lane.put(run(20, 29))
        await until(lambda: len(host.runs) == 3)
        rate_per_s = lane.rate_per_s
        assert rate_per_s == 10.0
        assert not lane.has_room
        for first_seq in (0, 20):
            host.link.say(Isolating(query="q", epoch=1, first_seq=first_seq))
        await until(lambda: owner.isolating == [0, 20])
        assert lane.has_room
        assert not lane.idle
        clock.advance(3600.0)
        assert lane.overdue() == []
        assert lane.silence_s is None
        host.answer(0, 9, [], poison=[Poison(row=i, reason="bad") for i in range(10)])
        host.answer(20, 29)
        await until(lambda: len(owner.answers) == 3)
        assert lane.idle
        assert lane.rate_per_s == rate_per_s
        assert owner.answers[1].poison == tuple((seq, "bad") for seq in range(10))
        lane.put(run(30, 39))
        clock.advance(3600.0)
        assert lane.silence_s is not None


async def test_isolated_runs_leave_room_only_as_long_as_there_is_credit() -> None:
    host, owner = FakeHost("vm1", credit_bytes=10), Owner()
    async with running(host, owner) as lane:
        lane.put(run(0, 99))
        await until(lambda: len(host.runs) == 1)
        host.link.say(Isolating(query="q", epoch=1, first_seq=0))
        await until(lambda: owner.isolating == [0])
        assert not lane.has_room
        host.consume(host.runs[0])
        await until(lambda: lane.has_room)


async def test_a_query_that_is_at_fault_itself_is_no_failure_of_its_lane() -> None:
    host, owner = FakeHost("vm1"), Owner()
    async with running(host, owner):
        host.link.say(QueryFailed(query="q", epoch=1, reason="too many", broken=True))
        await until(lambda: owner.broken == ["too many"])
        assert owner.failed == []
