"""What a trace contains, computed from what an exchange says: pure, over a real exchange and over made-up stories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.core.exchange.events as ev
from gateway.core.exchange import Exchange, ExchangeSettings
from gateway.core.traces.ids import TraceIds
from gateway.core.traces.spans import spans_of
from gateway.core.traces.stories import OPEN_MOST, VISITS_MOST, RunStory, Stories, Visit
from policies.failures.overdue import Patience
from policies.signals import HOME


@dataclass(frozen=True)
class Range:
    """A run."""

    first_seq: int
    last_seq: int
    arrival_s: float = 0.0
    raw_bytes: int = 100
    read_s: float | None = None
    disordered: bool = False

    @property
    def events(self) -> int:
        return self.last_seq - self.first_seq + 1


class Told:
    """An exchange with one lane, and the stories of its runs."""

    def __init__(self, committed: tuple[tuple[int, int], ...] = ()) -> None:
        settings = ExchangeSettings(patience=Patience(), ordered=True, flush_s=30.0, held_bytes_max=1 << 20)
        self.exchange: Exchange[Range, Any] = Exchange(settings, committed=committed)
        self.stories = Stories(lambda _: True)
        self.ended: list[RunStory] = []
        self.say(ev.LaneOpened(at_s=0.0, lane=HOME, credit_bytes=1 << 20))

    def say(self, event: ev.ExchangeEvent[Range, Any], rtt_s: float | None = None) -> None:
        self.ended += self.stories.take(event, self.exchange.handle(event), rtt_s)

    def answered(self, first: int, last: int, at_s: float, batch_id: int = 3, batch_s: float = 1.0) -> None:
        answer: ev.Answered[Any] = ev.Answered(
            at_s=at_s, lane=HOME, first_seq=first, last_seq=last, results=None, result_bytes=0, batch_id=batch_id,
            batch_s=batch_s,
        )  # fmt: skip
        self.say(answer, rtt_s=0.5)

    def sent(self, first: int, at_s: float, rows: int = 1) -> None:
        self.say(ev.Packed(at_s=at_s, lane=HOME, first_seq=first, raw_bytes=9, payload_bytes=5, rows=rows))
        if rows:
            self.say(ev.Sent(at_s=at_s + 0.25, lane=HOME, first_seq=first, took_s=0.25))


def test_a_run_from_its_arrival_to_its_commit() -> None:
    told = Told()
    told.say(ev.RunLogged(at_s=3.0, run=Range(0, 9, arrival_s=1.0, read_s=2.0)))
    told.sent(0, 4.0)
    told.answered(0, 9, 7.0)
    assert told.ended == []
    told.say(ev.Committed(at_s=8.0, ranges=((0, 9),)))
    (story,) = told.ended
    spans = spans_of(story, {"spillway.query": "q"})
    assert [(span.name, span.begin_s, span.end_s, span.parent) for span in spans] == [
        ("run", 1.0, 8.0, None),
        ("read from the source", 1.0, 2.0, 0),
        ("write to the run log", 2.0, 3.0, 0),
        ("wait for a lane", 3.0, 3.0, 0),
        ("lane home", 3.0, 7.0, 0),
        ("pack", 3.0, 4.0, 4),
        ("send", 4.0, 4.25, 4),
        ("wait on the host", 4.25, 5.75, 4),
        ("micro-batch", 5.75, 6.75, 4),
        ("results back", 6.75, 7.0, 4),
        ("hold for earlier runs", 7.0, 7.0, 0),
        ("commit to the sink", 7.0, 8.0, 0),
    ]
    assert spans[0].attributes["spillway.query"] == "q"
    assert spans[8].attributes == {
        "spillway.micro_batch.id": 3, "spillway.micro_batch.seconds": 1.0, "spillway.isolated": False,
    }  # fmt: skip
    assert told.stories.open_count == 0


def test_one_answer_and_one_commit_end_several_runs() -> None:
    told = Told()
    for first in (0, 10):
        told.say(ev.RunLogged(at_s=1.0, run=Range(first, first + 9)))
        told.sent(first, 2.0)
    told.answered(0, 19, 5.0)
    told.say(ev.Committed(at_s=7.0, ranges=((0, 19),)))
    figures = [(story.first_seq, story.answered_s, story.released_s, story.committed_s) for story in told.ended]
    assert figures == [(0, 5.0, 5.0, 7.0), (10, 5.0, 5.0, 7.0)]


def test_no_row_for_the_host_is_no_time_there() -> None:
    told = Told()
    told.say(ev.RunLogged(at_s=1.0, run=Range(0, 9)))
    told.sent(0, 2.0, rows=0)
    told.answered(0, 9, 2.0, -1, 0.0)
    told.say(ev.Committed(at_s=3.0, ranges=((0, 9),)))
    names = [span.name for span in spans_of(told.ended[0], {})]
    assert names[4:6] == ["lane home", "pack"]
    assert not {"send", "micro-batch"} & set(names)


def test_what_was_committed_before_is_not_waited_for() -> None:
    told = Told(committed=((0, 9),))
    told.say(ev.RunLogged(at_s=1.0, run=Range(0, 9)))
    told.sent(0, 2.0)
    assert told.stories.open_count == 1
    told.answered(0, 9, 5.0)
    assert (told.stories.open_count, told.ended) == (0, [])


def test_the_number_of_runs_that_are_followed_is_bounded() -> None:
    told = Told()
    for seq in range(2 * OPEN_MOST):
        told.say(ev.RunLogged(at_s=1.0, run=Range(seq, seq)))
    assert told.stories.open_count == OPEN_MOST


def test_the_number_of_dispatches_that_are_kept_is_bounded() -> None:
    told = Told()
    told.say(ev.RunLogged(at_s=1.0, run=Range(0, 9)))
    for at in range(2 * VISITS_MOST):
        told.say(ev.LaneLost(at_s=2.0 + at, lane=HOME, reason="again"))
        told.say(ev.LaneOpened(at_s=2.5 + at, lane=HOME, credit_bytes=1 << 20))
    told.sent(0, 99.0)
    told.answered(0, 9, 100.0)
    told.say(ev.Committed(at_s=101.0, ranges=((0, 9),)))
    visits = told.ended[0].visits
    assert len(visits) == VISITS_MOST
    assert {visit.why for visit in visits} == {"again"}
    assert spans_of(told.ended[0], {})[-1].end_s == 101.0


TIMES = st.floats(0, 1e6)


@st.composite
def stories(draw: st.DrawFn) -> RunStory:
    """A story whose times on the gateway's clock are in order; the source's may be anything."""
    steps = iter(sorted(draw(st.lists(TIMES, min_size=24, max_size=24))))
    arrival_s, read_s = draw(TIMES), draw(st.none() | TIMES)
    story = RunStory(0, 9, 10, 100, arrival_s, read_s, next(steps))
    for attempt in range(draw(st.integers(1, 4))):
        visit = Visit(draw(st.sampled_from([HOME, "vm-1"])), attempt + 1, next(steps), why="lost")
        if draw(st.booleans()):
            visit.packed_s = next(steps)
            visit.sent_s = draw(st.none() | st.just(next(steps)))
        visit.ended_s = next(steps)
        story.visits.append(visit)
    story.visits[-1].why = ""
    assert story.visits[-1].ended_s is not None
    story.answered_s = story.visits[-1].ended_s
    story.released_s, story.committed_s = next(steps), next(steps)
    story.batch_id, story.batch_s, story.back_s = draw(st.integers(-1, 5)), draw(TIMES), draw(TIMES)
    return story


@given(stories())
def test_each_span_is_in_its_parent_and_the_first_is_filled(story: RunStory) -> None:
    spans = spans_of(story, {})
    assert [span.parent for span in spans].count(None) == 1
    for index, span in enumerate(spans):
        assert span.begin_s <= span.end_s
        if span.parent is not None:
            assert span.parent < index
            assert spans[span.parent].begin_s <= span.begin_s
            assert span.end_s <= spans[span.parent].end_s
    below = [span for span in spans if span.parent == 0]
    assert (below[0].begin_s, below[-1].end_s) == (spans[0].begin_s, spans[0].end_s)
    assert [span.begin_s for span in below[1:]] == [span.end_s for span in below[:-1]]


@given(stories())
def test_a_micro_batch_lasts_as_long_as_the_host_says_if_there_is_time_for_it(story: RunStory) -> None:
    spans = spans_of(story, {})
    for span in spans:
        if span.name == "micro-batch":
            (wait,) = [other for other in spans if (other.name, other.parent) == ("wait on the host", span.parent)]
            room_s = story.answered_s - wait.begin_s
            assert span.end_s - span.begin_s == pytest.approx(min(story.batch_s, room_s), abs=1e-6)


@given(st.floats(0.001, 1.0), st.binary(min_size=1, max_size=64))
def test_about_the_share_is_sampled(share: float, seed: bytes) -> None:
    ids = TraceIds(seed, share)
    sampled = sum(ids.is_sampled("q", seq) for seq in range(1000))
    # Seven standard deviations.
    assert sampled == pytest.approx(1000 * share, abs=7 * (1000 * share * (1 - share)) ** 0.5 + 1)


def test_ids_are_the_same_for_the_same_seed_and_differ_otherwise() -> None:
    ids, other = TraceIds(b"a", 1.0), TraceIds(b"b", 1.0)
    assert ids.trace_id("q", 7) == TraceIds(b"a", 0.1).trace_id("q", 7)
    spans = {each.span_id("q", part, seq, 0) for each in (ids, other) for part in (None, 0, 1) for seq in range(100)}
    assert len(spans) == 600
    assert all(0 < span < 2**64 for span in spans)
    assert 0 < ids.trace_id("q", 7) < 2**128
    assert len({each.trace_id(query, 7) for each in (ids, other) for query in ("q", "p")}) == 4
