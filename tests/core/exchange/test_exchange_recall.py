"""Home does a run that results wait for, if the cloud keeps it for longer than events take at home."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.exchange import instructions as ins
from gateway.core.exchange.lanes.recalls import HeldPatience, Recalls
from policies.signals import HOME
from tests.core.exchange.exchange_shell import Shell, of


def with_a_run_in_the_cloud(*, slow: bool = False, **settings: Any) -> Shell:
    """Home answers in 2 s; run 20 is in the cloud, and run 30, which home has answered, waits for it."""
    shell = Shell(**settings)
    shell.open(HOME)
    shell.open("vm1")
    shell.log_tens(0, 20)
    shell.now_s = 2.0
    shell.answer(HOME, 0, 19)
    shell.share(home=0.5, vm1=0.5)
    if slow:
        shell.slow.add("vm1")
    shell.log_tens(20, 40)
    assert [first for first, _ in shell.sent["vm1"]] == [20]
    shell.now_s = 3.0
    shell.answer(HOME, 30, 39)
    return shell


def test_home_does_a_run_that_results_wait_for_longer_than_events_take_at_home() -> None:
    shell = with_a_run_in_the_cloud()
    assert of(ins.RunRecalled, shell.tick(1.9)) == []
    (recalled,) = of(ins.RunRecalled, shell.tick(0.2))
    assert (recalled.lane, recalled.first_seq) == ("vm1", 20)
    assert (recalled.in_lane_s, recalled.pause_s) == pytest.approx((3.1, 12.4))
    assert shell.sent[HOME][-1] == (20, 2)
    shell.answer(HOME, 20, 29)
    assert shell.released() == [(0, 19), (20, 29), (30, 39)]
    assert not of(ins.Done, shell.answer("vm1", 20, 29))[0].counts


def test_the_clouds_answer_counts_if_it_is_first() -> None:
    shell = with_a_run_in_the_cloud()
    shell.tick(2.1)
    assert of(ins.Done, shell.answer("vm1", 20, 29))[0].counts
    assert shell.open_in(HOME) == 0
    assert shell.released()[-2:] == [(20, 29), (30, 39)]


def test_the_lane_rests_and_home_gets_its_share() -> None:
    shell = with_a_run_in_the_cloud()
    shell.tick(2.1)
    shell.log_tens(40, 60)
    assert [first for first, _ in shell.sent["vm1"]] == [20]
    assert [first for first, _ in shell.sent[HOME]][-2:] == [20, 40]
    shell.answer(HOME, 20, 29)
    shell.answer(HOME, 40, 59)
    shell.tick(13.5)
    shell.log_tens(60, 80)
    assert (60, 1) in shell.sent["vm1"]


def test_a_lane_that_rests_gets_runs_while_home_is_away() -> None:
    shell = with_a_run_in_the_cloud()
    shell.tick(2.1)
    shell.answer(HOME, 20, 29)
    shell.lose(HOME)
    shell.log(40, 49)
    assert shell.sent["vm1"][-1] == (40, 1)


def test_full_results_recall_a_run_at_once_if_home_has_nothing_to_do() -> None:
    shell = with_a_run_in_the_cloud(held_bytes_max=25)
    assert [each.first_seq for each in shell.of(ins.RunRecalled)] == [20]
    assert shell.sent[HOME][-1] == (20, 2)


def test_a_run_that_is_being_sent_is_recalled_and_waited_for_no_more() -> None:
    shell = with_a_run_in_the_cloud(slow=True)
    shell.tick(2.1)
    assert [each.first_seq for each in shell.of(ins.RunRecalled)] == [20]
    shell.end_send("vm1", 20, 30.0)
    assert "vm1" not in [each.lane for each in of(ins.AskedAgain, shell.tick(500.0))]


def test_a_recalled_run_that_is_overdue_at_home_goes_to_another_lane() -> None:
    shell = with_a_run_in_the_cloud()
    shell.open("vm2")
    shell.share(home=0.4, vm1=0.3, vm2=0.3)
    shell.tick(2.1)
    assert [each.lane for each in of(ins.AskedAgain, shell.tick(200.0))] == [HOME]
    assert shell.sent["vm2"] == [(20, 3)]


def test_nothing_is_recalled_to_a_home_that_gets_no_events() -> None:
    shell = with_a_run_in_the_cloud()
    shell.share(home=0.0, vm1=1.0)
    assert of(ins.RunRecalled, shell.tick(5.0)) == []


def test_unordered_results_wait_for_nothing() -> None:
    shell = with_a_run_in_the_cloud(ordered=False)
    assert of(ins.RunRecalled, shell.tick(5.0)) == []


def test_results_wait_as_long_as_events_take_at_home_and_at_least_2_s() -> None:
    patience = HeldPatience()
    assert not patience.ends(1e3, 1.0), "nothing is known of home"
    patience.see_home(0.2)
    assert [patience.ends(held_s, 0.1) for held_s in (1.9, 2.1)] == [False, True]
    for _ in range(50):
        patience.see_home(8.0)
    assert [patience.ends(held_s, 0.1) for held_s in (7.9, 8.1)] == [False, True]
    assert [patience.ends(held_s, 9.0) for held_s in (8.9, 9.1)] == [False, True]


def test_pauses_grow_until_an_answer_counts() -> None:
    recalls = Recalls()
    assert [recalls.recalled(0.0, 2.0) for _ in range(3)] == [8.0, 16.0, 32.0]
    recalls.answered()
    assert recalls.recalled(100.0, 2.0) == 8.0
    assert recalls.pause_until_s == 108.0
    assert max(recalls.recalled(0.0, 1e4) for _ in range(50)) == 600.0
