"""The correct answers of SNB2016's query 1, by scoring everything anew at each time.

It shares no code with the query but the type of an event. A row says what holds after all events of one time, if that
differs from the row before it. The last time has no row, because no later event says that it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from engines.snb.events import SocialEvent

DAY_MS = 24 * 3600 * 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Thread:
    """A post with the comments that are related to it."""

    def __init__(self, post: SocialEvent) -> None:
        self.post = post
        self.commenters: list[int] = []
        self.written_ms = [_ms(post.at)]

    def add(self, comment: SocialEvent) -> None:
        self.commenters.append(comment.user_id)
        self.written_ms.append(_ms(comment.at))

    def score(self, now_ms: int) -> int:
        return sum(10 - (now_ms - each) // DAY_MS for each in self.written_ms if now_ms - each < 10 * DAY_MS)

    def others(self) -> int:
        return len(set(self.commenters) - {self.post.user_id})


def top_three(events: Iterable[SocialEvent]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the query for events in order of time."""
    threads: dict[int, Thread] = {}
    about: dict[int, int] = {}  # of every comment, also of one that came too late: the post
    shown: list[tuple[Any, ...]] = []
    row: dict[str, Any] | None = None
    for now, group in groupby(events, key=lambda event: event.at):
        if row is not None:
            yield row
        threads = {number: thread for number, thread in threads.items() if thread.score(_ms(now)) > 0}
        for event in group:
            if event.kind == "post":
                threads[event.id] = Thread(event)
            elif event.kind == "comment":
                post = event.post_commented if event.comment_replied is None else about[event.comment_replied]
                assert post is not None
                about[event.id] = post
                if post in threads:
                    threads[post].add(event)
        top = best_of(threads.values(), _ms(now))
        row = as_row(now, top) if top != shown else None
        shown = top


def best_of(threads: Iterable[Thread], now_ms: int) -> list[tuple[Any, ...]]:
    """Return post, writer, score and commenters of the first three."""
    ranked = sorted(
        # The latest post first, then the one with the latest comment; a post without one is its own.
        (-thread.score(now_ms), -thread.written_ms[0], -thread.written_ms[-1], thread.post.id, thread)
        for thread in threads
    )
    return [(each.post.id, each.post.user, -score, each.others()) for score, _, _, _, each in ranked[:3]]


def as_row(at: datetime, top: list[tuple[Any, ...]]) -> dict[str, Any]:
    """Return a row of the query's result."""
    row: dict[str, Any] = {"at": at}
    for place, (post, user, score, commenters) in enumerate([*top, *[(None,) * 4] * (3 - len(top))], 1):
        row |= {
            f"top{place}_post": post,
            f"top{place}_user": user,
            f"top{place}_score": score,
            f"top{place}_commenters": commenters,
        }
    return row


def _ms(at: datetime) -> int:
    return (at - EPOCH) // timedelta(milliseconds=1)
