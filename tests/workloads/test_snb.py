"""SNB2016: the reader, the generator, the oracle by hand, and the scores against the oracle on random networks."""

from __future__ import annotations

import gzip
from collections import Counter
from collections.abc import Iterable, Iterator
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.snb.events import SocialEvent, numbered, read_events
from engines.snb.generator import generate_events
from engines.snb.scores import ActiveScores
from tests.workloads.places import CHALLENGE
from tests.workloads.snb_oracle import as_row, top_three

START = datetime(2010, 2, 1, tzinfo=UTC)


def post(hours: float, number: int, user: int = 1) -> SocialEvent:
    at = START + timedelta(hours=hours)
    return SocialEvent(number=0, at=at, kind="post", id=number, user_id=user, user=f"u{user}")


def comment(hours: float, number: int, user: int, *, on: int | None = None, to: int | None = None) -> SocialEvent:
    at = START + timedelta(hours=hours)
    return SocialEvent(
        number=0, at=at, kind="comment", id=number, user_id=user, user=f"u{user}", post_commented=on, comment_replied=to
    )


def tick(hours: float) -> SocialEvent:
    return SocialEvent(number=0, at=START + timedelta(hours=hours), kind="end")


def shown(events: Iterable[SocialEvent]) -> list[tuple[float, list[tuple[Any, ...]]]]:
    """Return the oracle's rows: hours, and post, score and commenters of each place."""
    rows = []
    for row in top_three(numbered(events)):
        places = [tuple(row[f"top{place}_{name}"] for name in ("post", "score", "commenters")) for place in (1, 2, 3)]
        rows.append(((row["at"] - START) / timedelta(hours=1), [each for each in places if each[0] is not None]))
    return rows


def test_a_post_loses_a_point_each_24_hours_and_ends_after_ten_days() -> None:
    events = [post(0, 1), tick(23.9), tick(24), tick(47), tick(48), tick(239.9), tick(240), tick(300)]
    wanted = [(0, [(1, 10, 0)]), (24, [(1, 9, 0)]), (48, [(1, 8, 0)]), (239.9, [(1, 1, 0)]), (240, [])]
    assert shown(events) == wanted


def test_comments_add_their_own_scores_also_if_they_reply_to_comments() -> None:
    events = [post(0, 1), comment(12, 2, 2, on=1), comment(13, 3, 3, to=2), comment(14, 4, 3, to=3), tick(36)]
    assert shown(events) == [
        (0, [(1, 10, 0)]),
        (12, [(1, 20, 1)]),
        (13, [(1, 30, 2)]),
        (14, [(1, 40, 2)]),
        (36, [(1, 38, 2)]),
    ]


def test_a_comment_keeps_a_post_alive_but_does_not_revive_it() -> None:
    events = [post(0, 1), comment(239, 2, 2, on=1), comment(300, 3, 3, to=2), comment(540, 4, 2, on=1), tick(541)]
    assert shown(events) == [(0, [(1, 10, 0)]), (239, [(1, 11, 1)]), (300, [(1, 18, 2)]), (540, [])]


def test_a_comment_at_the_moment_at_which_a_post_ends_is_too_late() -> None:
    assert shown([post(0, 1), comment(240, 2, 2, on=1)])[1:] == [(240, [])]


def test_the_writer_of_a_post_is_none_of_its_commenters() -> None:
    assert shown([post(0, 1, user=5), comment(1, 2, 5, on=1), comment(2, 3, 6, on=1)])[1:] == [
        (1, [(1, 20, 0)]),
        (2, [(1, 30, 1)]),
    ]


def test_all_events_of_one_time_make_one_row() -> None:
    events = [post(0, 1), post(0, 2), comment(0, 3, 2, on=1), post(1, 4), comment(1, 5, 9, on=4)]
    assert shown(events) == [(0, [(1, 20, 1), (2, 10, 0)]), (1, [(4, 20, 1), (1, 20, 1), (2, 10, 0)])]


def test_of_equal_scores_the_latest_post_is_first_and_then_the_one_with_the_latest_comment() -> None:
    events = [
        post(0, 1),
        post(0, 2),
        post(1, 3),
        comment(2, 4, 9, on=1),
        comment(3, 5, 9, on=2),
        comment(4, 6, 9, on=3),
    ]
    assert shown(events)[-1] == (4, [(3, 20, 1), (2, 20, 1), (1, 20, 1)])


def test_a_fourth_post_is_not_shown() -> None:
    events = [post(0, 1), post(1, 2), post(2, 3), post(3, 4)]
    assert shown(events)[-1] == (3, [(4, 10, 0), (3, 10, 0), (2, 10, 0)])


@st.composite
def networks(draw: st.DrawFn) -> list[SocialEvent]:
    """Return a few users' posts and comments, with gaps of up to five days."""
    events: list[SocialEvent] = []
    hours = 0
    for number in range(1, draw(st.integers(1, 40))):
        hours += draw(st.sampled_from([0, 0, 1, 12, 24, 120]))
        user = draw(st.integers(1, 4))
        to = draw(st.sampled_from([None, *events]))
        if to is None:
            events.append(post(hours, number, user))
        elif to.kind == "post":
            events.append(comment(hours, number, user, on=to.id))
        else:
            events.append(comment(hours, number, user, to=to.id))
    return list(numbered(events))


def by_scores(events: list[SocialEvent], restarts: set[int]) -> Iterator[dict[str, Any]]:
    """Yield the rows that the query's scores give if they are made anew from the active posts at some events."""
    scores, last = ActiveScores(0), list[Any]()
    for event, following in pairwise(events):
        at_ms = int(event.at.timestamp() * 1000)
        if event.number in restarts:
            scores = ActiveScores(scores.now_ms, deepcopy(scores.posts).items())
        scores.advance(at_ms)
        if event.kind == "post":
            scores.post(event.id, event.user_id, event.user)
        else:
            replied, commented = event.comment_replied, event.post_commented
            scores.comment(event.id, event.user_id, replied=replied, commented=commented)
        top = scores.top(3)
        if following.at > event.at and top != last:
            yield as_row(event.at, list(top))
            last = top


@given(networks(), st.sets(st.integers(0, 40)))
def test_the_scores_are_the_oracles_wherever_they_are_made_anew(events: list[SocialEvent], restarts: set[int]) -> None:
    assert list(by_scores(events, restarts)) == list(top_three(events))


def test_the_reader_merges_both_files_by_time_and_ends_the_stream(tmp_path: Path) -> None:
    (tmp_path / "posts.dat").write_text(
        "2010-02-01T05:12:32.921+0000|7|3981||Lei Liu\n2010-02-09T04:05:21.000+0000|8|974|a|b|Heinz Frank"
    )
    with gzip.open(tmp_path / "comments.dat.gz", "wt") as file:
        file.write("2010-02-09T04:05:20.777+0000|9|2886|LOL|Baoping Wu||7\n")
        file.write("2010-02-09T04:05:20.777+0000|10|2886|ok|Baoping Wu|9|\n")
    events = list(read_events(tmp_path))
    assert [event.number for event in events] == [0, 1, 2, 3, 4]
    assert [(event.kind, event.id) for event in events] == [
        ("post", 7),
        ("comment", 9),
        ("comment", 10),
        ("post", 8),
        ("end", 0),
    ]
    assert [(event.comment_replied, event.post_commented) for event in events[1:3]] == [(None, 7), (9, None)]
    assert (events[3].text, events[3].user) == ("a|b", "Heinz Frank")
    assert events[0].at == datetime(2010, 2, 1, 5, 12, 32, 921_000, UTC)
    assert events[4].at - events[3].at == timedelta(milliseconds=1)


def test_the_reader_names_what_it_cannot_read(tmp_path: Path) -> None:
    (tmp_path / "posts.dat").write_text("2010-02-01T05:12:32.921+0000|7|3981||Lei Liu\n2010-02-01|x\n")
    with pytest.raises(FileNotFoundError, match=r"no comments\.dat"):
        list(read_events(tmp_path))
    (tmp_path / "comments.dat").write_text("")
    with pytest.raises(ValueError, match=r"posts\.dat:2: not a line of posts"):
        list(read_events(tmp_path))


def test_generated_networks_are_like_the_challenges() -> None:
    events = list(generate_events(2_000, seed=3))
    assert events == list(generate_events(2_000, seed=3))
    kinds = Counter(event.kind for event in events)
    assert 0.64 < kinds["comment"] / 2_000 < 0.72
    days = (events[-1].at - events[0].at) / timedelta(days=1)
    assert 5.5 < days < 7.5, "57,295 events in 187 days are 2,000 in 6.5"
    assert all(one.at <= other.at for one, other in pairwise(events))
    known: set[int] = set()
    for event in events[:-1]:
        replied = event.comment_replied or event.post_commented
        assert replied is None or replied in known
        known.add(event.id)


@pytest.mark.skipif(not CHALLENGE.exists(), reason="the challenge's files are not here")
def test_the_challenges_files_are_read_and_scored() -> None:
    events = list(read_events(CHALLENGE))
    assert len(events) == 18_083 + 39_212 + 1
    assert list(by_scores(events[:1_500], {700})) == list(top_three(events[:1_500]))
