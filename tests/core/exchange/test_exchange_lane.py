"""Packing, sending and credit; a lane's room and rate; runs whose bad rows are being isolated."""

from __future__ import annotations

import pytest

from gateway.core.exchange import events as ev
from gateway.core.exchange import instructions as ins
from policies.signals import HOME
from tests.core.exchange.exchange_shell import PATIENCE, FakeRun, Shell, of


def at_home(credit_bytes: int = 1 << 20, **kw: object) -> Shell:
    shell = Shell(**kw)  # type: ignore[arg-type]  # settings of whatever type
    shell.open(HOME, credit_bytes)
    return shell


# ------------------------------------------------------------------------------------------------- packing and sending


def test_one_run_at_a_time_is_packed_and_sent() -> None:
    shell = at_home()
    shell.packs = False
    shell.slow.add(HOME)
    shell.log_tens(0, 20)
    assert [pack.run.first_seq for pack in shell.of(ins.Pack)] == [0]
    assert of(ins.Send, shell.packed(HOME, 0)) == [ins.Send(HOME, 0)]
    assert [pack.run.first_seq for pack in shell.of(ins.Pack)] == [0], "run 0 is still being sent"
    assert [pack.run.first_seq for pack in of(ins.Pack, shell.end_send(HOME, 0))] == [10]


def test_no_more_bytes_are_sent_than_the_host_gives_credit_for() -> None:
    shell = at_home(credit_bytes=25, home_only=True)
    shell.lose(HOME)
    shell.open(HOME, credit_bytes=25, planned_end_seq=100)
    shell.log_tens(0, 100)
    for credited in range(8):
        assert len(shell.sent[HOME]) == 2 + credited
        shell.credit(HOME, 10)
    assert [first for first, _ in shell.sent[HOME]] == [*range(0, 100, 10)]


def test_a_run_larger_than_all_credit_goes_alone_and_no_other_is_packed_meanwhile() -> None:
    shell = at_home(credit_bytes=5)
    shell.log_tens(0, 30)
    assert shell.sent[HOME] == [(0, 1)]
    assert not shell.exchange.lane(HOME).has_credit
    assert shell.exchange.waiting_runs == 1
    shell.credit(HOME, 4)
    assert not shell.exchange.lane(HOME).has_credit
    assert len(shell.of(ins.Pack)) == 1
    shell.credit(HOME, 6)
    assert shell.sent[HOME] == [(0, 1), (10, 1)]


def test_a_packed_run_waits_for_the_credit_that_covers_it() -> None:
    shell = at_home(credit_bytes=15)
    shell.log_tens(0, 20)
    assert len(shell.of(ins.Pack)) == len(shell.of(ins.Dispatched)) == 2
    assert shell.sent[HOME] == [(0, 1)]
    shell.credit(HOME, 4)
    assert shell.sent[HOME] == [(0, 1)]
    shell.credit(HOME, 1)
    assert shell.sent[HOME] == [(0, 1), (10, 1)]


@pytest.mark.parametrize("consumed_bytes", [11, -1])
def test_credit_that_cannot_be_is_refused(consumed_bytes: int) -> None:
    shell = at_home()
    shell.log(0, 9)
    with pytest.raises(ValueError, match="only 10 were in flight"):
        shell.credit(HOME, consumed_bytes)
    shell.credit(HOME, 10)


def test_a_lane_with_impossible_credit_or_that_is_open_already_is_refused() -> None:
    shell = at_home()
    with pytest.raises(ValueError, match="open already"):
        shell.open(HOME)
    with pytest.raises(ValueError, match="a credit of -1 bytes"):
        shell.open("vm1", -1)
    assert shell.exchange.open_lanes == (HOME,)


def test_a_run_without_a_row_that_the_host_needs_is_not_sent_and_takes_no_credit() -> None:
    shell = at_home(credit_bytes=5)
    shell.empty.add(0)
    told = shell.log(0, 9)
    assert of(ins.Dispatched, told)[0].sent_bytes == 0
    assert of(ins.Done, told)[0].counts
    assert shell.sent == {}
    assert shell.exchange.lane(HOME).has_credit
    shell.commit((0, 9))
    assert shell.exchange.idle


@pytest.mark.parametrize(
    "event",
    [
        ev.Packed(at_s=0, lane=HOME, first_seq=10, raw_bytes=1, payload_bytes=1, rows=1),
        ev.Packed(at_s=0, lane=HOME, first_seq=0, raw_bytes=1, payload_bytes=-1, rows=1),
        ev.Sent(at_s=0, lane=HOME, first_seq=0, took_s=0),
    ],
)
def test_what_was_not_asked_for_cannot_be_done(event: ev.Packed | ev.Sent) -> None:
    shell = at_home()
    shell.packs = False
    shell.log_tens(0, 20)
    with pytest.raises(ValueError, match="run"):
        shell.exchange.handle(event)
    shell.exchange.validate()
    assert of(ins.Send, shell.packed(HOME, 0))


# -------------------------------------------------------------------------------------------------------- room and rate


def test_room_is_two_runs_until_the_rate_is_known_and_then_what_keeps_the_engine_busy() -> None:
    shell = at_home()
    for first in (0, 100):
        assert shell.exchange.lane(HOME).has_room
        shell.log(first, first + 99)
    assert not shell.exchange.lane(HOME).has_room
    shell.now_s = 0.5
    shell.answer(HOME, 0, 99)
    shell.answer(HOME, 100, 199)
    lane = shell.exchange.lane(HOME)
    assert lane.rate_per_s(0.5) == pytest.approx(400)
    assert lane.rate_per_s(100.5) == pytest.approx(400), "idle time does not count"
    shell.now_s = 100.5
    for first in range(200, 1200, 100):
        shell.log(first, first + 99)
    assert shell.exchange.lane(HOME).open_events == 600
    assert shell.exchange.waiting_events == 400
    assert shell.exchange.queued_runs(1) == 4 + 5, "one run is in the micro-batch"
    assert shell.exchange.queued_runs(8) == 4, "all of the lane's runs may be in the micro-batch"


def test_a_run_in_which_the_host_looks_for_bad_rows_makes_no_other_wait() -> None:
    shell = at_home()
    for first in (0, 100):
        shell.log(first, first + 99)
    assert shell.exchange.queued_runs(1) == 1
    shell.isolate(HOME, 0)
    assert shell.exchange.queued_runs(1) == 0


def test_older_measurements_of_the_rate_fade_with_the_slots() -> None:
    shell = at_home()
    shell.log(0, 99)
    shell.now_s = 1.0
    shell.answer(HOME, 0, 99)
    for _ in range(5):
        shell.tell(ev.SlotPassed)
    shell.log(100, 199)
    shell.now_s = 2.0
    shell.tell(ev.SlotPassed)
    shell.now_s = 3.0
    shell.answer(HOME, 100, 199)
    old = 0.8**6
    assert shell.exchange.lane(HOME).rate_per_s(3.0) == pytest.approx((100 * old + 100) / (old + 0.8 + 1.0))


def test_a_lane_without_credit_has_no_room_for_a_third_run() -> None:
    shell = at_home(credit_bytes=20)
    shell.now_s = 0.1
    shell.log(0, 9)
    shell.now_s = 0.2
    shell.answer(HOME, 0, 9)
    shell.log_tens(10, 40)
    assert shell.open_in(HOME) == 2
    shell.credit(HOME, 10)
    assert shell.open_in(HOME) == 2, "run 20 took the credit"
    shell.credit(HOME, 10)
    assert shell.open_in(HOME) == 3


def test_a_batch_that_was_planned_before_its_host_was_lost_gets_all_its_runs_at_once() -> None:
    shell = Shell(home_only=True)
    shell.log_tens(0, 120)
    shell.open(HOME, planned_end_seq=80)
    assert [first for first, _ in shell.sent[HOME]] == [*range(0, 80, 10)]
    shell.answer(HOME, 0, 79)
    assert shell.open_in(HOME) == 2


def test_a_run_that_came_back_goes_with_credit_only() -> None:
    shell = Shell()
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log_tens(0, 20)
    shell.share(home=1.0)
    shell.open(HOME)
    shell.log_tens(20, 40)
    assert not shell.exchange.lane(HOME).has_room
    shell.lose("vm1")
    assert shell.sent[HOME] == [(20, 1), (30, 1), (0, 2), (10, 2)]


# -------------------------------------------------------------------------------------------- looking for bad rows


def test_a_run_that_is_isolated_is_open_but_takes_no_room_is_not_overdue_and_is_no_service() -> None:
    shell = at_home(flush_s=None)
    shell.log_tens(0, 20)
    shell.now_s = 1.0
    shell.answer(HOME, 10, 19)
    shell.log(20, 29)
    rate_per_s = shell.exchange.lane(HOME).rate_per_s(1.0)
    assert rate_per_s == 10.0
    assert not shell.exchange.lane(HOME).has_room
    shell.isolate(HOME, 0)
    shell.isolate(HOME, 20)
    shell.isolate(HOME, 20)
    assert shell.exchange.lane(HOME).has_room
    assert not shell.exchange.rested(HOME)
    assert shell.exchange.lane(HOME).waiting_s(5.0) is None
    assert shell.tick(3600.0) == []
    assert shell.exchange.open_by_lane() == {}
    assert of(ins.Done, shell.answer(HOME, 0, 9))[0].isolated == (0,)
    assert of(ins.Done, shell.answer(HOME, 20, 29))[0].isolated == (20,)
    assert shell.exchange.rested(HOME)
    assert shell.exchange.lane(HOME).rate_per_s(shell.now_s) == rate_per_s
    shell.log(30, 39)
    assert of(ins.FailLane, shell.tick(3600.0)) == [ins.FailLane(HOME, 3600.0)]


def test_isolated_runs_leave_room_only_as_long_as_there_is_credit() -> None:
    shell = at_home(credit_bytes=10)
    shell.log(0, 9)
    shell.isolate(HOME, 0)
    assert not shell.exchange.lane(HOME).has_room
    shell.log(10, 19)
    assert shell.exchange.waiting_runs == 1
    shell.credit(HOME, 10)
    assert shell.exchange.waiting_runs == 0


def test_word_of_bad_rows_in_a_run_that_is_not_here_changes_nothing() -> None:
    shell = at_home()
    shell.open("vm1")
    shell.log(0, 9)
    assert shell.isolate("vm1", 0) == shell.isolate(HOME, 50) == []
    assert shell.exchange.open_by_lane()[HOME].runs == 1


def test_word_of_bad_rows_may_come_before_the_send_has_returned() -> None:
    shell = at_home()
    shell.slow.add(HOME)
    shell.log(0, 9)
    shell.isolate(HOME, 0)
    shell.end_send(HOME, 0, 1.0)
    assert shell.tick(10_000.0) == []


def test_an_answer_may_come_before_the_send_has_returned() -> None:
    shell = at_home()
    shell.slow.add(HOME)
    shell.log(0, 9)
    assert of(ins.Done, shell.answer(HOME, 0, 9))
    shell.log(10, 19)
    assert len(shell.of(ins.Pack)) == 1, "the send of run 0 is under way"
    assert of(ins.Pack, shell.end_send(HOME, 0)) == [ins.Pack(HOME, FakeRun(10, 19), 1)]


def test_the_answer_of_an_isolated_run_ends_no_silence_and_teaches_nothing() -> None:
    shell = at_home(flush_s=None)
    shell.log_tens(0, 20)
    shell.isolate(HOME, 0)
    shell.now_s = 50.0
    shell.answer(HOME, 0, 9)
    assert shell.exchange.lane(HOME).waiting_s(60.0) == 60.0
    shell.now_s = 60.0
    shell.answer(HOME, 10, 19)
    assert shell.exchange.lane(HOME).waiting_s(60.0) is None
    shell.log(20, 29)
    # 60 s are usual from the one run that was served; with the 50 s of the other it were less.
    assert of(ins.AskedAgain, shell.tick(8 * 60.0)) == []
    assert of(ins.AskedAgain, shell.tick(0.5)) == [ins.AskedAgain(HOME, 20)]


def test_a_run_that_is_answered_without_the_host_ends_no_silence() -> None:
    shell = at_home(flush_s=None)
    shell.empty.add(10)
    shell.log(0, 9)
    shell.now_s = 50.0
    assert of(ins.Done, shell.log(10, 19))
    assert shell.exchange.lane(HOME).waiting_s(60.0) == 60.0


def test_a_run_that_came_back_waits_for_credit() -> None:
    shell = Shell()
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log(0, 9)
    shell.share(home=1.0)
    shell.open(HOME, credit_bytes=20)
    shell.log_tens(10, 30)
    assert shell.sent[HOME] == [(10, 1), (20, 1)]
    shell.lose("vm1")
    assert shell.exchange.waiting_runs == 1
    shell.credit(HOME, 1)
    assert shell.exchange.waiting_runs == 0


def test_runs_of_a_stateful_query_behind_one_that_is_isolated_are_overdue_only_after_it() -> None:
    shell = at_home(flush_s=None, home_only=True)
    shell.log_tens(0, 10)
    shell.now_s = 1.0
    shell.answer(HOME, 0, 9)
    shell.commit((0, 9))
    shell.log_tens(10, 40)
    shell.isolate(HOME, 10)
    assert {first for first, _ in shell.sent[HOME]} >= {10, 20}
    assert shell.exchange.lane(HOME).waiting_s(200.0) is None
    assert shell.tick(280.0) == []
    shell.answer(HOME, 10, 19)
    shell.commit((10, 19))
    assert shell.tick(10.0) == []
    assert of(ins.Reopen, shell.tick(0.5)) == [ins.Reopen(20)]


def test_runs_of_a_stateful_query_are_overdue_only_after_the_sink_has_the_results_before_them() -> None:
    shell = at_home(flush_s=None, home_only=True)
    shell.log_tens(0, 20)
    shell.now_s = 1.0
    shell.answer(HOME, 0, 9)
    assert {first for first, _ in shell.sent[HOME]} >= {10}
    assert shell.exchange.lane(HOME).waiting_s(200.0) is None
    # The sink is down, or another part of the query has not answered yet.
    assert shell.tick(280.0) == []
    shell.commit((0, 9))
    assert shell.tick(10.0) == []
    assert of(ins.Reopen, shell.tick(0.5)) == [ins.Reopen(10)]


def test_a_search_whose_answer_never_comes_ends_with_the_query_opened_again() -> None:
    shell = at_home(flush_s=None, home_only=True)
    shell.log_tens(0, 30)
    shell.isolate(HOME, 0)
    assert shell.tick(PATIENCE.isolating_s) == []
    assert of(ins.Reopen, shell.tick(0.5)) == [ins.Reopen(10)]


def test_a_search_takes_time_from_the_runs_behind_it_so_their_lane_is_as_slow_as_it_seems() -> None:
    shell = at_home(flush_s=None, home_only=True)
    shell.log_tens(0, 20)
    shell.isolate(HOME, 0)
    shell.now_s = 100.0
    shell.answer(HOME, 0, 9)
    shell.answer(HOME, 10, 19)
    assert shell.exchange.lane(HOME).rate_per_s(100.0) == pytest.approx(0.1)
