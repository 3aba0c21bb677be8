"""Overdue runs, silent lanes, and lost lanes."""

from __future__ import annotations

import pytest

from gateway.core.exchange import events as ev
from gateway.core.exchange import instructions as ins
from policies.signals import HOME
from tests.core.exchange.exchange_shell import Shell, of


def with_overdue_runs() -> Shell:
    """Runs 10 and 20 became overdue in a cloud lane that has answered run 0, and went home."""
    shell = Shell()
    shell.open(HOME)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log(0, 9)
    shell.answer("vm1", 0, 9)
    shell.log_tens(10, 30)
    assert len(shell.sent["vm1"]) == 3
    assert shell.tick(9.0) == []
    assert not shell.exchange.rested("vm1")
    assert of(ins.AskedAgain, shell.tick(2.0)) == [ins.AskedAgain("vm1", 10), ins.AskedAgain("vm1", 20)]
    assert shell.exchange.rested("vm1")
    return shell


def change_home(shell: Shell, credit_bytes: int = 1 << 20) -> None:
    """Home is lost and returns before any run could go elsewhere."""
    shell.tell(ev.Held)
    shell.lose(HOME)
    shell.open(HOME, credit_bytes)
    shell.tell(ev.Resumed)


def test_an_overdue_run_goes_to_another_lane_and_the_first_answer_counts() -> None:
    shell = with_overdue_runs()
    assert shell.sent[HOME] == [(10, 2), (20, 2)]
    assert shell.exchange.asked("vm1", 10, 29) == shell.exchange.asked(HOME, 10, 29)
    assert of(ins.Done, shell.answer(HOME, 10, 19))[0].counts
    assert of(ins.Done, shell.answer("vm1", 20, 29))[0].counts
    assert shell.open_in(HOME) == 0
    assert not of(ins.Done, shell.answer(HOME, 20, 29))[0].counts
    assert not of(ins.Done, shell.answer("vm1", 10, 19))[0].counts
    assert shell.released() == [(0, 9), (10, 19), (20, 29)]
    shell.commit((0, 29))
    assert shell.exchange.idle


def test_an_overdue_run_counts_for_the_profiler_where_it_was_until_it_goes_out_elsewhere() -> None:
    shell = with_overdue_runs()
    assert set(shell.exchange.open_by_lane()) == {HOME}
    shell.tick(21.0)
    assert shell.of(ins.AskedAgain)[2:] == []


def test_a_late_answer_teaches_what_the_lane_takes() -> None:
    shell = with_overdue_runs()
    shell.answer("vm1", 10, 19)
    shell.answer("vm1", 20, 29)
    shell.log(30, 39)
    # 0.2 of 11 s, and then of what was missing to them: about 4 s are usual, and 8 times that is patience.
    assert of(ins.AskedAgain, shell.tick(30.0)) == []
    assert of(ins.AskedAgain, shell.tick(5.0)) == [ins.AskedAgain("vm1", 30)]


def test_only_what_a_lane_answers_in_time_counts_for_its_rate() -> None:
    shell = with_overdue_runs()
    before_per_s = shell.exchange.lane("vm1").rate_per_s(shell.now_s)
    shell.now_s += 1.0
    shell.answer("vm1", 10, 19)
    shell.answer("vm1", 20, 29)
    assert shell.exchange.lane("vm1").rate_per_s(shell.now_s) == before_per_s
    assert shell.exchange.lane(HOME).rate_per_s(shell.now_s) == 0.0, "it had work for a second, and answered nothing"


def test_each_attempt_is_given_twice_the_time() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.log(0, 9)
    for attempt, patience_s in enumerate([120.0, 240.0], start=1):
        assert shell.sent[HOME][-1] == (0, attempt)
        assert of(ins.AskedAgain, shell.tick(patience_s)) == []
        assert of(ins.AskedAgain, shell.tick(0.5)) == [ins.AskedAgain(HOME, 0)]


def test_without_another_lane_the_same_one_is_asked_again() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.log(0, 9)
    shell.tick(121.0)
    assert shell.sent[HOME] == [(0, 1), (0, 2)]
    shell.credit(HOME, 20)
    assert of(ins.Done, shell.answer(HOME, 0, 9))[0].counts
    assert not of(ins.Done, shell.answer(HOME, 0, 9))[0].counts
    shell.commit((0, 9))
    assert shell.exchange.idle


def test_while_home_is_lost_an_overdue_run_does_not_wait_for_it() -> None:
    shell = Shell()
    shell.open("vm1")
    shell.share(home=0.5, vm1=0.5)
    shell.log(0, 9)
    shell.tick(121.0)
    assert shell.sent["vm1"] == [(0, 1), (0, 2)]


def test_a_run_that_is_answered_elsewhere_before_it_is_sent_is_not_sent() -> None:
    shell = with_overdue_runs()
    shell.packs = False
    change_home(shell)
    assert of(ins.Pack, shell.told)[-1].run.first_seq == 10
    shell.answer("vm1", 10, 19)
    shell.answer("vm1", 20, 29)
    told = shell.packed(HOME, 10)
    assert of(ins.Dispatched, told) == of(ins.Send, told) == of(ins.Pack, told) == []
    assert shell.exchange.rested(HOME)


def test_a_packed_run_that_waits_for_credit_gives_way_when_it_is_answered_elsewhere() -> None:
    shell = with_overdue_runs()
    change_home(shell, credit_bytes=15)
    assert shell.sent[HOME][2:] == [(10, 3)]
    assert shell.of(ins.Pack)[-1].run.first_seq == 20
    shell.log(30, 39, disordered=True)
    told = shell.answer("vm1", 20, 29)
    assert of(ins.Pack, told)[0].run.first_seq == 30
    assert shell.sent[HOME][2:] == [(10, 3)]
    shell.credit(HOME, 10)
    assert shell.sent[HOME][2:] == [(10, 3), (30, 1)]


# ------------------------------------------------------------------------------------------------------- silent lanes


def test_a_lane_that_takes_runs_again_and_again_and_answers_none_is_given_up_once() -> None:
    shell = with_overdue_runs()
    rounds = 1
    while not shell.of(ins.FailLane):
        rounds += 1
        for first in (20 * rounds - 10, 20 * rounds):
            shell.answer(HOME, first - 20, first - 11)
        shell.log_tens(20 * rounds - 10, 20 * rounds + 10)
        shell.tick(11.0)
        assert rounds < 10
    assert rounds == 3, "it was silent for three times what makes a run overdue"
    assert shell.of(ins.FailLane)[0].lane == "vm1"
    shell.tick(100.0)
    assert len(of(ins.FailLane, [each for each in shell.told if getattr(each, "lane", "") == "vm1"])) == 1
    shell.lose("vm1", "silent")
    shell.open("vm1")
    assert shell.exchange.lane("vm1").waiting_s(shell.now_s) is None


def test_a_lane_whose_credit_was_lost_is_given_up() -> None:
    shell = Shell()
    shell.open(HOME, credit_bytes=10)
    shell.log(0, 9)
    shell.answer(HOME, 0, 9)
    shell.log(10, 19)
    assert shell.tick(29.0) == []
    assert of(ins.FailLane, shell.tick(2.0)) == [ins.FailLane(HOME, 31.0)]
    assert len(shell.sent[HOME]) == 1


def test_while_a_send_is_under_way_a_lane_is_given_the_patience_for_unknown_ones() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.log(0, 9)
    shell.answer(HOME, 0, 9)
    shell.slow.add(HOME)
    shell.log(10, 19)
    assert shell.tick(300.0) == []
    shell.end_send(HOME, 10, 290.0)
    shell.now_s += 9.0
    assert of(ins.FailLane, shell.tick()) == []
    assert of(ins.AskedAgain, shell.tick(2.0)) == [ins.AskedAgain(HOME, 10)]


# --------------------------------------------------------------------------------------------------- stateful queries


def test_an_overdue_run_of_a_stateful_query_has_it_opened_again_once() -> None:
    shell = Shell(home_only=True)
    shell.open(HOME)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log_tens(0, 20)
    told = shell.tick(121.0)
    assert told == [ins.Reopen(0)]
    assert shell.tick(1.0) == []
    assert shell.exchange.waiting_runs == 0
    assert of(ins.Done, shell.answer(HOME, 0, 19))[0].counts, "a late answer counts all the same"


def test_a_silent_home_of_a_stateful_query_is_given_up_instead() -> None:
    shell = Shell(home_only=True)
    shell.open(HOME)
    shell.log(0, 9)
    assert shell.tick(361.0) == [ins.FailLane(HOME, 361.0)]
    shell.lose(HOME, "silent")
    shell.open(HOME)
    assert shell.sent[HOME] == [(0, 1), (0, 2)]


# ---------------------------------------------------------------------------------------------------------- lost lanes


def test_runs_of_a_lane_that_is_taken_out_go_elsewhere_lowest_first() -> None:
    shell = Shell()
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log_tens(0, 40)
    shell.answer("vm1", 0, 9)
    assert [run.first_seq for run in shell.exchange.asked("vm1", 10, 29)] == [10, 20]
    shell.lose("vm1")
    assert shell.exchange.waiting_runs == 3
    assert shell.exchange.rested("vm1")
    shell.open(HOME)
    assert shell.sent[HOME] == [(10, 2), (20, 2)]
    assert shell.of(ins.Moved) == [], "it was taken out on purpose"


def test_it_is_told_how_long_the_runs_of_a_lost_lane_took_to_go_elsewhere() -> None:
    shell = Shell()
    shell.open("vm1", credit_bytes=20)
    shell.share(home=0.0, vm1=1.0)
    shell.log_tens(0, 20)
    shell.share(home=1.0)
    shell.now_s = 5.0
    assert shell.lose("vm1", "kill -9", lost_s=4.5) == []
    shell.now_s = 5.25
    shell.open(HOME, credit_bytes=10)
    assert shell.of(ins.Moved) == [ins.Moved("vm1", "kill -9", 2, 4.5, 5.25, 5.25)]


def test_the_first_and_the_last_run_may_go_elsewhere_at_different_times() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.log(0, 9)
    shell.log(10, 19, disordered=True)
    shell.open("vm1")
    shell.share(home=0.5, vm1=0.5)
    shell.now_s = 1.0
    shell.lose(HOME, "cut", lost_s=0.5)
    assert shell.sent["vm1"] == [(0, 2)]
    shell.now_s = 4.0
    told = shell.open(HOME)
    assert of(ins.Moved, told) == [ins.Moved(HOME, "cut", 2, 0.5, 1.0, 4.0)]


def test_a_lost_lane_without_runs_is_told_of_at_once() -> None:
    shell = Shell()
    shell.open("vm1")
    shell.now_s = 2.0
    assert shell.lose("vm1", "cut") == [ins.Moved("vm1", "cut", 0, 2.0, 2.0, 2.0)]


def test_a_run_that_is_answered_where_it_was_overdue_has_moved_too() -> None:
    shell = with_overdue_runs()
    shell.tell(ev.Held)
    shell.lose(HOME, "cut")
    shell.answer("vm1", 10, 19)
    assert shell.of(ins.Moved) == []
    shell.now_s += 1.0
    told = shell.answer("vm1", 20, 29)
    assert of(ins.Moved, told) == [ins.Moved(HOME, "cut", 2, 11.0, 12.0, 12.0)]


def test_a_lane_that_was_lost_is_tried_again_like_any_other() -> None:
    shell = with_overdue_runs()
    shell.lose("vm1")
    shell.lose(HOME)
    shell.open("vm1")
    assert shell.sent["vm1"][3:] == [(10, 3), (20, 3)]


@pytest.mark.parametrize("flush_s", [None, 30.0])
def test_the_answers_of_a_lost_lane_are_ignored_when_it_is_open_again(flush_s: float | None) -> None:
    shell = Shell(flush_s=flush_s)
    shell.open(HOME)
    shell.log(0, 9)
    shell.lose(HOME, "cut")
    shell.packs = False
    shell.open(HOME)
    assert of(ins.Done, shell.answer(HOME, 0, 9))[0].counts, "what is open there may be answered before it is packed"
    assert shell.packed(HOME, 0) == []
