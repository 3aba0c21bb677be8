"""Makes the spans of a trace from the story of a run. Pure.

The spans on the host are computed: the answer says how long the micro-batch took, and the link knows its round trip.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gateway.core.traces.stories import RunStory, Visit
from policies.signals import HOME

Attribute = str | int | float | bool


@dataclass(frozen=True, slots=True)
class RunSpan:
    """One span.

    Attributes:
        name: what was done.
        begin_s: on the gateway's clock.
        end_s: likewise.
        parent: the index of the span that contains it; None for the whole run.
        attributes: figures.
        failed: why it came to nothing; empty if it did not.
    """

    name: str
    begin_s: float
    end_s: float
    parent: int | None = 0
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    failed: str = ""


def spans_of(story: RunStory, about: Mapping[str, Attribute]) -> list[RunSpan]:
    """Return the spans of a committed run; the first one contains all others, and each is in its parent.

    Unless a run was in several lanes at a time, the spans below the first one follow each other without a gap.

    Args:
        story: the run's.
        about: more attributes of the first span.
    """
    arrival_s = min(story.arrival_s, story.logged_s)
    read_s = story.logged_s if story.read_s is None else min(max(story.read_s, arrival_s), story.logged_s)
    spans = [
        RunSpan("run", arrival_s, story.committed_s, None, {**about, **_of_run(story)}),
        RunSpan("read from the source", arrival_s, read_s),
        RunSpan("write to the run log", read_s, story.logged_s),
    ]
    waits_since_s = story.logged_s
    for visit in story.visits:
        spans.append(RunSpan("wait for a lane", min(waits_since_s, visit.begun_s), visit.begun_s))
        spans += _of_visit(story, visit, len(spans))
        waits_since_s = spans[-1].end_s if visit.ended_s is None else visit.ended_s
    spans.append(RunSpan("hold for earlier runs", story.answered_s, story.released_s, 0, {"spillway.late": story.late}))
    spans.append(RunSpan("commit to the sink", story.released_s, story.committed_s))
    return spans


def _of_run(story: RunStory) -> dict[str, Attribute]:
    return {
        "spillway.run.first_seq": story.first_seq,
        "spillway.run.last_seq": story.last_seq,
        "spillway.run.events": story.events,
        "spillway.run.bytes": story.raw_bytes,
    }


def _of_visit(story: RunStory, visit: Visit, index: int) -> Iterator[RunSpan]:
    """Yield the span of a dispatch, whose index is given, and those in it."""
    end_s = story.answered_s if visit.ended_s is None else visit.ended_s
    attributes: dict[str, Attribute] = {
        "spillway.lane": visit.lane,
        "spillway.place": "home" if visit.lane == HOME else "vm",
        "spillway.attempt": visit.attempt,
    }
    if visit.packed_s is not None:
        attributes |= {"spillway.payload_bytes": visit.payload_bytes, "spillway.rows": visit.rows}
    yield RunSpan(f"lane {attributes['spillway.place']}", visit.begun_s, end_s, 0, attributes, visit.why)
    if visit.packed_s is None:
        return
    yield RunSpan("pack", visit.begun_s, min(visit.packed_s, end_s), index)
    if visit.sent_s is None:
        return
    yield RunSpan("send", min(visit.packed_s, end_s), min(visit.sent_s, end_s), index)
    if not visit.why and story.batch_id >= 0:
        yield from _on_host(story, min(visit.sent_s, end_s), end_s, index)


def _on_host(story: RunStory, sent_s: float, answered_s: float, index: int) -> Iterator[RunSpan]:
    # The host measured the micro-batch; a round trip in which a busy machine was slow must not leave no time for it.
    batch_end_s = min(answered_s, max(sent_s + story.batch_s, answered_s - story.back_s))
    batch_begin_s = max(sent_s, batch_end_s - story.batch_s)
    figures: dict[str, Attribute] = {
        "spillway.micro_batch.id": story.batch_id,
        "spillway.micro_batch.seconds": story.batch_s,
        "spillway.isolated": story.isolated,
    }
    yield RunSpan("wait on the host", sent_s, batch_begin_s, index)
    yield RunSpan("micro-batch", batch_begin_s, batch_end_s, index, figures)
    yield RunSpan("results back", batch_end_s, answered_s, index)
