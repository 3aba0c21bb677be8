"""Where a run is from logged to committed: answers, duplicates, commits, and its history."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.exchange import events as ev
from gateway.core.exchange import instructions as ins
from policies.signals import HOME
from tests.core.exchange.exchange_shell import FakeRun, Shell, of


def with_two_in_home(**kw: Any) -> Shell:
    shell = Shell(**kw)
    shell.open(HOME)
    shell.log_tens(0, 20)
    return shell


def test_a_run_from_logged_to_committed() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.now_s = 1.0
    run = FakeRun(0, 9, 1.0)
    assert shell.log(0, 9) == [
        ins.Pack(HOME, run, 1),
        ins.Dispatched(HOME, run, 80, 10),
        ins.Send(HOME, 0),
    ]
    assert not shell.exchange.idle
    shell.now_s = 3.0
    assert shell.answer(HOME, 0, 9, results="r", result_bytes=7, batch_id=4, batch_s=0.3) == [
        ins.Done(HOME, 0, 9, (run,), True, (), 4, 0.3),
        ins.Release(0, 9, "r", 10, 1.0, False),
    ]
    assert not shell.exchange.idle, "the sink does not have it yet"
    shell.commit((0, 9))
    assert shell.exchange.idle
    assert shell.exchange.is_done(0, 9)


def test_an_answer_may_cover_several_whole_runs() -> None:
    shell = with_two_in_home()
    assert shell.exchange.asked(HOME, 0, 19) == (FakeRun(0, 9, 0.0), FakeRun(10, 19, 0.0))
    (done, release, *_) = shell.answer(HOME, 0, 19)
    assert [run.first_seq for run in done.runs] == [0, 10]
    assert (release.first_seq, release.last_seq, release.events) == (0, 19, 20)
    assert shell.exchange.asked(HOME, 0, 19) == ()
    shell.commit((0, 19))


def test_the_arrival_of_a_release_is_the_mean_over_its_events() -> None:
    shell = Shell(home_only=True)
    shell.open(HOME)
    shell.log(0, 9)
    shell.now_s = 4.0
    shell.log(10, 39)
    assert of(ins.Release, shell.answer(HOME, 0, 39))[0].arrival_s == pytest.approx(3.0)


@pytest.mark.parametrize(("first", "last"), [(0, 8), (1, 9), (0, 12), (5, 14), (0, 29), (30, 39)])
def test_a_range_that_cuts_or_exceeds_runs_is_refused_and_changes_nothing(first: int, last: int) -> None:
    shell = with_two_in_home()
    assert shell.exchange.asked(HOME, first, last) == ()
    with pytest.raises(ValueError, match=f"answered {first}-{last}"):
        shell.answer(HOME, first, last)
    assert shell.open_in(HOME) == 2
    assert of(ins.Done, shell.answer(HOME, 0, 9))


def test_an_answer_from_a_lane_that_was_not_asked_is_refused() -> None:
    shell = with_two_in_home()
    shell.open("vm1")
    with pytest.raises(ValueError, match="lane vm1 answered 0-9"):
        shell.answer("vm1", 0, 9)
    assert shell.exchange.asked("vm1", 0, 9) == ()


def test_an_answer_of_which_a_part_is_done_is_refused() -> None:
    shell = with_two_in_home()
    shell.answer(HOME, 0, 9)
    with pytest.raises(ValueError, match="answered 0-19"):
        shell.answer(HOME, 0, 19)
    assert shell.exchange.duplicate_count == 0


def test_an_answer_that_comes_twice_is_told_as_a_duplicate_and_releases_nothing() -> None:
    shell = with_two_in_home()
    shell.answer(HOME, 0, 9)
    assert shell.answer(HOME, 0, 9) == [ins.Done(HOME, 0, 9, (), False, (), 1, 0.5)]
    shell.commit((0, 9))
    assert shell.answer(HOME, 0, 9) == [ins.Done(HOME, 0, 9, (), False, (), 1, 0.5)]
    assert shell.exchange.duplicate_count == 2
    assert shell.released() == [(0, 9)]


def test_an_answer_from_a_lane_that_is_not_open_any_more_is_ignored() -> None:
    shell = with_two_in_home()
    shell.lose(HOME)
    assert shell.answer(HOME, 0, 9) == []
    assert (shell.exchange.waiting_runs, shell.exchange.waiting_events) == (2, 20)
    for event in (
        ev.Packed(at_s=0, lane=HOME, first_seq=0, raw_bytes=1, payload_bytes=1, rows=1),
        ev.Sent(at_s=0, lane=HOME, first_seq=0, took_s=0),
        ev.Isolating(at_s=0, lane=HOME, first_seq=0),
        ev.Credited(at_s=0, lane=HOME, consumed_bytes=1),
        ev.LaneDraining(at_s=0, lane=HOME),
        ev.LaneLost(at_s=0, lane=HOME, reason="again"),
    ):
        assert shell.exchange.handle(event) == []


def test_a_run_that_was_done_before_it_was_logged_runs_again_and_does_not_count() -> None:
    shell = Shell(home_only=True, committed=[(0, 9)])
    shell.open(HOME)
    shell.log(0, 9)
    shell.log(10, 19)
    assert shell.sent[HOME] == [(0, 1), (10, 1)]
    (done,) = shell.answer(HOME, 0, 9)
    assert ([run.first_seq for run in done.runs], done.counts) == ([0], False)
    assert shell.released() == []
    shell.answer(HOME, 10, 19)
    assert shell.released() == [(10, 19)]
    shell.commit((10, 19))
    assert shell.exchange.idle


def test_an_answer_of_which_a_part_was_done_before_it_was_logged_is_refused() -> None:
    shell = Shell(home_only=True, committed=[(0, 9)])
    shell.open(HOME)
    shell.log_tens(0, 20)
    with pytest.raises(ValueError, match="answered 0-19"):
        shell.answer(HOME, 0, 19)
    assert shell.open_in(HOME) == 2


@pytest.mark.parametrize(
    ("first", "last", "events"), [(0, 9, 10), (15, 24, 10), (105, 114, 10), (20, 29, 11), (31, 30, 0), (-1, 3, 5)]
)
def test_a_run_that_cannot_be_is_refused(first: int, last: int, events: int) -> None:
    class Odd(FakeRun):
        @property
        def events(self) -> int:
            return events

    shell = Shell(committed=[(100, 109)])
    shell.log_tens(0, 20)
    with pytest.raises(ValueError, match=f"run {first}-{last}"):
        shell.tell(ev.RunLogged, run=Odd(first, last))
    assert shell.exchange.waiting_runs == 2


@pytest.mark.parametrize("ranges", [[(0, 8)], [(10, 19)], [(0, 19)], [(0, 9), (0, 9)], [(3, 9)], [(9, 0)], [(50, 59)]])
def test_only_what_was_released_can_be_committed(ranges: list[tuple[int, int]]) -> None:
    shell = with_two_in_home()
    shell.answer(HOME, 0, 9)
    with pytest.raises(ValueError, match="committed"):
        shell.commit(*ranges)
    shell.commit((0, 9))
    with pytest.raises(ValueError, match="committed"):
        shell.commit((0, 9))


def test_a_commit_may_span_several_releases() -> None:
    shell = with_two_in_home()
    shell.answer(HOME, 10, 19)
    shell.answer(HOME, 0, 9)
    shell.commit((0, 19))
    assert shell.exchange.idle


def test_the_oldest_run_that_waits_and_what_is_open_by_lane() -> None:
    shell = Shell()
    shell.now_s = 5.0
    shell.log(0, 9)
    shell.now_s = 7.0
    shell.log(10, 19)
    assert shell.exchange.oldest_waiting_s == 5.0
    assert shell.exchange.open_by_lane() == {}
    shell.open(HOME)
    assert shell.exchange.oldest_waiting_s is None
    seen = shell.exchange.open_by_lane()[HOME]
    assert (seen.events, seen.runs, seen.oldest_arrival_s) == (20, 2, 5.0)
    shell.isolate(HOME, 0)
    seen = shell.exchange.open_by_lane()[HOME]
    assert (seen.events, seen.runs, seen.oldest_arrival_s) == (10, 1, 7.0)
    shell.lose(HOME)
    assert shell.exchange.open_by_lane() == {}


def test_the_story_of_a_run_is_told_in_sentences() -> None:
    shell = Shell(flush_s=5.0)
    shell.open("vm1")
    shell.share(home=0.0, vm1=1.0)
    shell.log(0, 9)
    shell.log(10, 19)
    shell.isolate("vm1", 0)
    shell.answer("vm1", 10, 19)
    shell.tick(6.0)
    shell.lose("vm1", "cut")
    shell.open(HOME)
    shell.answer(HOME, 0, 9)
    assert shell.exchange.story(4) == [
        "At 0.000 s run 0-9 was logged.",
        "At 0.000 s run 0-9 was dispatched to lane vm1, attempt 1.",
        "At 0.000 s run 0-9 was sent to lane vm1.",
        "At 0.000 s run 0-9 has bad rows, which lane vm1 looks for.",
        "At 6.000 s run 0-9 waits again: lane vm1 was lost.",
        "At 6.000 s run 0-9 was dispatched to lane home, attempt 2.",
        "At 6.000 s run 0-9 was sent to lane home.",
        "At 6.000 s run 0-9 was answered by lane home.",
        "At 6.000 s run 0-9 was released late.",
    ]
    shell.commit((0, 19))
    assert shell.exchange.story(4) == ["Seq 4 was committed before."]
    assert shell.exchange.story(99) == ["Seq 99 was never logged here."]


def test_a_long_story_keeps_its_last_steps() -> None:
    shell = Shell()
    shell.log(0, 9)
    for _ in range(50):
        shell.open(HOME)
        shell.lose(HOME, "cut")
    story = shell.exchange.story(0)
    assert len(story) == 32
    assert story[-1] == "At 0.000 s run 0-9 waits again: lane home was lost."


def test_the_input_of_a_run_that_is_done_is_not_kept() -> None:
    shell = with_two_in_home(flush_s=None)
    shell.answer(HOME, 10, 19)
    shell.answer(HOME, 0, 9)
    assert not shell.exchange.idle, "the runs are not committed"
    assert shell.exchange.held_inputs == []


def test_time_does_not_go_back() -> None:
    shell = Shell()
    shell.open(HOME)
    shell.now_s = 10.0
    shell.log(0, 9)
    shell.now_s = 9.0
    shell.answer(HOME, 0, 9)
    assert shell.exchange.story(0)[-1].startswith("At 10.000 s")
