"""The correct answers of SNB2016's query 1, by scoring everything anew at each time.

It shares no code with the query but the type of an event. A row says what holds after all events of one time, if that
differs from the row before it. The last time has no row, because no later event says that it is complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.snb.events import SocialEvent

DAY_MS = 24 * 3600 * 1000
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Network:
    """All posts and comments so far, in the order in which they came.

    Args:
        most: how many may come.
    """

    def __init__(self, most: int) -> None:
        self.posts: list[SocialEvent] = []
        self.alive = np.zeros(most, dtype=bool)  # of each post
        self._number: dict[int, int] = {}  # of a post or comment by its id: the place of its post in ``posts``
        self._others: list[set[int]] = []
        self._last_ms: list[int] = []
        self._written_ms = np.zeros(most, dtype=np.int64)  # of each post or comment that counts
        self._about = np.zeros(most, dtype=np.int64)
        self._count = 0

    def scores(self, now_ms: int) -> npt.NDArray[np.int64]:
        """Return the score of each post that there was."""
        ages = (now_ms - self._written_ms[: self._count]) // DAY_MS
        young = int(np.argmax(ages < 10)) if len(ages) and ages[-1] < 10 else len(ages)
        points = np.bincount(self._about[young : self._count], 10 - ages[young:], minlength=len(self.posts))
        return points.astype(np.int64)

    def end_posts(self, now_ms: int) -> None:
        """Let the posts end that have no score before anything comes now."""
        self.alive[: len(self.posts)] &= self.scores(now_ms) > 0

    def add(self, event: SocialEvent, now_ms: int) -> None:
        if event.kind == "post":
            self.alive[len(self.posts)] = True
            self._number[event.id] = len(self.posts)
            self.posts.append(event)
            self._others.append(set())
            self._last_ms.append(0)
        else:
            replied_to = event.post_commented if event.comment_replied is None else event.comment_replied
            assert replied_to is not None
            self._number[event.id] = self._number[replied_to]
        number = self._number[event.id]
        if self.alive[number]:
            self._written_ms[self._count], self._about[self._count] = now_ms, number
            self._count += 1
            if event.kind == "comment":
                self._others[number] |= {event.user_id} - {self.posts[number].user_id}
                self._last_ms[number] = now_ms

    def top_three(self, now_ms: int) -> list[tuple[Any, ...]]:
        """Return post, writer, score and commenters of the first three."""
        scores = np.where(self.alive[: len(self.posts)], self.scores(now_ms), 0)
        third = max(1, int(np.sort(scores)[-3:][0]))
        best = sorted(
            (-int(scores[number]), -ms(self.posts[number].at), -self._last_ms[number], self.posts[number].id, number)
            for number in np.flatnonzero(scores >= third).tolist()
        )
        named = ((self.posts[number], -score, self._others[number]) for score, _, _, _, number in best[:3])
        return [(post.id, post.user, score, len(others)) for post, score, others in named]


def top_three(events: Iterable[SocialEvent]) -> Iterator[dict[str, Any]]:
    """Yield the rows of the query for events in order of time."""
    ordered = list(events)
    network = Network(len(ordered))
    shown: list[tuple[Any, ...]] = []
    row: dict[str, Any] | None = None
    for at, group in groupby(ordered, key=lambda event: event.at):
        if row is not None:
            yield row
        network.end_posts(ms(at))
        for event in group:
            if event.kind != "end":
                network.add(event, ms(at))
        top = network.top_three(ms(at)) if network.posts else []
        row = as_row(at, top) if top != shown else None
        shown = top


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


def ms(at: datetime) -> int:
    """Return milliseconds since 1970."""
    return (at - EPOCH) // timedelta(milliseconds=1)
