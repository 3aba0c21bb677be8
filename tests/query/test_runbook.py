from __future__ import annotations

import pytest
from gateway_doubles import events
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.core.intervals import IntervalSet
from gateway.query.flow.runbook import Run, RunBook

LANES = ("home", "vm1", "vm2")


def run(first: int, last: int, arrival_s: float = 0.0) -> Run:
    return Run(first, last, events(first, last), arrival_s, raw_bytes=last - first + 1)


class BookMachine(RuleBasedStateMachine):
    """Random dealing, answers, lost lanes and duplicates: no run is lost, none is done twice."""

    def __init__(self) -> None:
        super().__init__()
        self.book = RunBook(IntervalSet())
        self.next_seq = 0
        self.waiting: set[int] = set()
        self.open: dict[str, set[int]] = {lane: set() for lane in LANES}
        self.overdue: dict[str, set[int]] = {lane: set() for lane in LANES}
        self.done: list[int] = []
        self.runs: dict[int, Run] = {}

    @rule(size=st.integers(1, 4))
    def add(self, size: int) -> None:
        new = run(self.next_seq, self.next_seq + size - 1, float(self.next_seq))
        self.runs[new.first_seq] = new
        self.waiting.add(new.first_seq)
        self.book.add(new)
        self.next_seq += size

    @precondition(lambda self: self.waiting)
    @rule(lane=st.sampled_from(LANES))
    def assign(self, lane: str) -> None:
        attempts = self.runs[min(self.waiting)].attempt
        taken = self.book.assign(lane)
        assert taken is self.runs[min(self.waiting)]
        assert taken.attempt == attempts + 1
        self.waiting.remove(taken.first_seq)
        self.open[lane].add(taken.first_seq)

    @rule(lane=st.sampled_from(LANES))
    def give_back(self, lane: str) -> None:
        assert {back.first_seq for back in self.book.give_back(lane)} == self.open[lane]
        self.waiting |= self.open[lane]
        self.open[lane] = set()
        self.overdue[lane] = set()

    @precondition(lambda self: any(self.open.values()))
    @rule(data=st.data())
    def ask_again(self, data: st.DataObject) -> None:
        lane = data.draw(st.sampled_from([lane for lane in LANES if self.open[lane]]))
        first_seq = data.draw(st.sampled_from(sorted(self.open[lane])))
        assert self.book.ask_again(lane, first_seq) is self.runs[first_seq]
        assert self.book.ask_again(lane, first_seq) is None, "it is not open there any more"
        self.open[lane].remove(first_seq)
        self.overdue[lane].add(first_seq)
        self.waiting.add(first_seq)

    @precondition(lambda self: any(self.open.values()) or any(self.overdue.values()))
    @rule(data=st.data())
    def complete(self, data: st.DataObject) -> None:
        asked = {lane: self.open[lane] | self.overdue[lane] for lane in LANES}
        lane = data.draw(st.sampled_from([lane for lane in LANES if asked[lane]]))
        wanted = self.runs[data.draw(st.sampled_from(sorted(asked[lane])))]
        left, counts = self.book.complete(lane, wanted.first_seq, wanted.last_seq)
        assert counts
        assert left == [wanted]
        for place in (self.waiting, *self.open.values(), *self.overdue.values()):
            place.discard(wanted.first_seq)
        self.done.append(wanted.first_seq)

    @precondition(lambda self: self.done)
    @rule(data=st.data(), lane=st.sampled_from(LANES))
    def answer_again(self, data: st.DataObject, lane: str) -> None:
        old = self.runs[data.draw(st.sampled_from(self.done))]
        before = self.book.duplicate_count
        assert self.book.complete(lane, old.first_seq, old.last_seq) == ([], False)
        assert self.book.duplicate_count == before + 1

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), lane=st.sampled_from(LANES))
    def answer_what_is_not_there(self, data: st.DataObject, lane: str) -> None:
        absent = self.runs[data.draw(st.sampled_from(sorted(self.waiting)))]
        if absent.first_seq in self.overdue[lane]:
            return
        with pytest.raises(ValueError, match="no runs that are open"):
            self.book.complete(lane, absent.first_seq, absent.last_seq)

    @invariant()
    def every_run_is_in_one_place(self) -> None:
        places = [*self.waiting, *(seq for lane in LANES for seq in self.open[lane]), *self.done]
        assert sorted(places) == sorted(self.runs)
        assert {lane: self.book.open_runs(lane) for lane in LANES} == {lane: len(self.open[lane]) for lane in LANES}
        assert self.book.open_count == sum(map(len, self.open.values()))
        assert self.book.idle == (len(self.done) == len(self.runs))
        assert self.book.waiting_events == sum(self.runs[seq].events for seq in self.waiting)
        next_waiting = self.book.next_waiting()
        assert (next_waiting.first_seq if next_waiting else None) == min(self.waiting, default=None)
        for seq in self.waiting.union(*self.open.values()):
            assert self.book.tried(self.runs[seq]) == {lane for lane in LANES if seq in self.overdue[lane]}
        undone = self.waiting.union(*self.open.values())
        assert self.book.oldest_arrival_s() == min((self.runs[seq].arrival_s for seq in undone), default=None)
        assert self.book.oldest_arrival_s(()) == min((self.runs[seq].arrival_s for seq in self.waiting), default=None)


TestRunBook = BookMachine.TestCase
TestRunBook.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_an_answer_may_cover_several_whole_runs() -> None:
    book = RunBook(IntervalSet())
    for first in (0, 10, 20):
        book.add(run(first, first + 9))
        book.assign("home")
    left, counts = book.complete("home", 0, 19)
    assert ([r.first_seq for r in left], counts) == ([0, 10], True)
    assert book.open_runs("home") == 1


@pytest.mark.parametrize(("first", "last"), [(0, 8), (1, 9), (0, 12), (5, 14), (0, 29), (30, 39)])
def test_a_range_that_cuts_or_exceeds_runs_is_refused_and_changes_nothing(first: int, last: int) -> None:
    book = RunBook(IntervalSet())
    for start in (0, 10):
        book.add(run(start, start + 9))
        book.assign("home")
    with pytest.raises(ValueError, match=f"answered {first}-{last}"):
        book.complete("home", first, last)
    assert book.open_runs("home") == 2


def test_a_run_that_was_done_before_it_was_added_leaves_the_book_but_does_not_count() -> None:
    book = RunBook(IntervalSet([(0, 9)]))
    book.add(run(0, 9))
    book.assign("home")
    left, counts = book.complete("home", 0, 9)
    assert ([r.first_seq for r in left], counts) == ([0], False)
    assert book.idle
