"""Which lane gets the next run: shares, home, draining lanes, holding, and waiting results."""

from __future__ import annotations

import pytest

from gateway.core.exchange import events as ev
from gateway.core.exchange import instructions as ins
from policies.signals import HOME
from tests.core.exchange.exchange_shell import Shell, of


def serve(shell: Shell, lane: str) -> None:
    """Answer all open runs of a lane, until there are none."""
    while open_now := shell.exchange.lane(lane).first_seqs:
        for first in open_now:
            shell.answer(lane, first, shell.runs[first].last_seq)


def firsts(shell: Shell, lane: str) -> list[int]:
    return [first for first, _ in shell.sent.get(lane, [])]


def test_runs_wait_when_there_is_no_lane() -> None:
    shell = Shell()
    assert shell.log(0, 9) == []
    assert (shell.exchange.waiting_runs, shell.exchange.waiting_events) == (1, 10)
    shell.open(HOME)
    assert firsts(shell, HOME) == [0]


def test_until_shares_name_it_a_cloud_lane_gets_nothing() -> None:
    shell = Shell()
    shell.open("vm1")
    shell.log_tens(0, 100)
    assert shell.sent == {}
    shell.open(HOME)
    serve(shell, HOME)
    assert firsts(shell, HOME) == [*range(0, 100, 10)]


def test_a_cloud_lane_gets_its_share() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.open("vm1")
    shell.share(home=0.5, vm1=0.5)
    for first in range(0, 400, 10):
        shell.log(first, first + 9)
        serve(shell, HOME)
        serve(shell, "vm1")
    assert len(firsts(shell, HOME)) == len(firsts(shell, "vm1")) == 20
    assert [first for first, _ in shell.released()] == [*range(0, 400, 10)]


def test_the_share_of_a_lane_that_is_away_is_home_s_until_it_is_back() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    assert shell.exchange.cloud_share == 1
    shell.log(0, 9)
    shell.answer("vm1", 0, 9)
    shell.lose("vm1")
    assert shell.exchange.cloud_share == 0
    shell.log(10, 19)
    shell.open("vm1")
    assert shell.exchange.cloud_share == 1
    shell.log(20, 29)
    assert (firsts(shell, HOME), firsts(shell, "vm1")) == ([10], [0, 20])


def test_while_home_is_lost_its_share_is_the_cloud_lanes() -> None:
    shell = Shell()
    for lane in (HOME, "vm1", "vm2"):
        shell.open(lane)
    shell.share(home=0.9, vm1=0.05, vm2=0.05)
    shell.lose(HOME, "killed")
    assert dict(shell.exchange.shares) == {HOME: 0.0, "vm1": 0.5, "vm2": 0.5}
    for first in range(0, 80, 10):
        shell.log(first, first + 9)
        serve(shell, "vm1")
        serve(shell, "vm2")
    assert len(firsts(shell, "vm1")) == len(firsts(shell, "vm2")) == 4
    shell.open(HOME)
    assert shell.exchange.cloud_share == pytest.approx(0.1)


@pytest.mark.parametrize("shares", [{"vm1": 1.1}, {"vm1": -0.1}, {"vm1": 0.6, "vm2": 0.6}, {"vm1": float("nan")}])
def test_impossible_shares_are_refused_and_the_old_ones_stay(shares: dict[str, float]) -> None:
    shell = Shell()
    shell.open("vm1")
    shell.share(home=0.25, vm1=0.75)
    before = dict(shell.exchange.shares)
    with pytest.raises(ValueError, match="shares"):
        shell.share(**shares)
    shell.open("vm2")
    assert dict(shell.exchange.shares) == before


@pytest.mark.parametrize(("home_only", "disordered"), [(True, False), (False, True)])
def test_out_of_order_runs_and_stateful_queries_stay_home(home_only: bool, disordered: bool) -> None:
    shell = Shell(home_only=home_only)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log(0, 9, disordered=disordered)
    shell.log(10, 19)
    assert shell.sent == {}, "run 10 does not overtake"
    shell.open(HOME)
    assert firsts(shell, HOME)[0] == 0
    assert firsts(shell, "vm1") == ([] if home_only else [10])


def test_a_lane_that_drains_gets_no_further_run_and_its_share_is_home_s() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log(0, 9)
    shell.tell(ev.LaneDraining, lane="vm1")
    assert shell.exchange.lane("vm1").draining
    assert not shell.exchange.rested("vm1")
    assert shell.exchange.cloud_share == 0
    shell.log(10, 19)
    assert (firsts(shell, HOME), firsts(shell, "vm1")) == ([10], [0])
    shell.answer("vm1", 0, 9)
    assert shell.exchange.rested("vm1")


def test_a_home_that_drains_gets_not_even_what_may_not_leave_it() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.open("vm1")
    shell.tell(ev.LaneDraining, lane=HOME)
    shell.log(0, 9, disordered=True)
    assert shell.sent == {}
    shell.lose(HOME)
    shell.open(HOME)
    assert firsts(shell, HOME) == [0]


def test_an_overdue_run_does_not_wait_for_a_lane_that_drains() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.open("vm1")
    shell.share(home=0.5, vm1=0.5)
    shell.log(0, 9)
    (lane,) = shell.sent
    other = "vm1" if lane == HOME else HOME
    shell.tell(ev.LaneDraining, lane=other)
    shell.tick(121.0)
    assert shell.sent == {lane: [(0, 1), (0, 2)]}


def test_while_held_no_run_is_dispatched_and_what_was_goes_on() -> None:
    shell = Shell()
    shell.open(HOME, credit_bytes=5)
    shell.log_tens(0, 20)
    shell.tell(ev.Held)
    shell.log(20, 29)
    shell.credit(HOME, 10)
    shell.answer(HOME, 0, 9)
    assert firsts(shell, HOME) == [0, 10]
    assert shell.exchange.waiting_runs == 1
    told = shell.tell(ev.Resumed)
    assert of(ins.Pack, told) == []
    assert shell.exchange.waiting_runs == 0


def test_the_lowest_run_goes_first_also_when_it_was_logged_last() -> None:
    shell = Shell()
    for first in (20, 0, 10):
        shell.log(first, first + 9)
    shell.open(HOME)
    assert firsts(shell, HOME) == [0, 10]


# ------------------------------------------------------------------------------------------------ results that wait


def full() -> Shell:
    """Run 10 is answered, run 0 is not, and no more results may be held."""
    shell = Shell(held_bytes_max=10, flush_s=5.0)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log_tens(0, 20)
    shell.answer("vm1", 10, 19)
    return shell


def test_with_too_much_held_only_what_is_waited_for_goes_out() -> None:
    shell = full()
    shell.log(20, 29)
    assert firsts(shell, "vm1") == [0, 10], "what comes later would only be held as well"
    shell.lose("vm1")
    shell.open(HOME)
    assert firsts(shell, HOME) == [0]
    shell.answer(HOME, 0, 9)
    assert firsts(shell, HOME) == [0], "what is released counts until the sink has it"
    shell.commit((0, 9), (10, 19))
    assert firsts(shell, HOME) == [0, 20]


def test_with_a_sink_that_takes_nothing_no_more_goes_out_than_may_be_held() -> None:
    shell = Shell(held_bytes_max=10)
    shell.open(HOME)
    shell.log(0, 9)
    shell.answer(HOME, 0, 9)
    shell.log(10, 19)
    assert shell.tick(100.0) == []
    assert firsts(shell, HOME) == [0]
    shell.commit((0, 9))
    assert firsts(shell, HOME) == [0, 10]


def test_a_run_that_is_late_already_goes_out_although_much_is_held() -> None:
    shell = full()
    assert shell.exchange.next_deadline_s == 5.0
    (release,) = shell.tick(5.0)
    assert (release.first_seq, release.late) == (10, False)
    shell.lose("vm1")
    shell.open(HOME)
    assert firsts(shell, HOME) == [0]
    assert of(ins.Release, shell.answer(HOME, 0, 9))[0].late
    assert shell.exchange.late_count == 1


def test_unordered_results_are_released_at_once() -> None:
    shell = Shell(ordered=False, flush_s=None)
    shell.open(HOME)
    shell.log_tens(0, 20)
    shell.answer(HOME, 10, 19)
    shell.answer(HOME, 0, 9)
    assert shell.released() == [(10, 19), (0, 9)]
    assert shell.exchange.late_count == shell.exchange.held_count == 0
