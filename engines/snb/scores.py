"""The scores of all active posts at one moment, kept up to date as time passes and as posts and comments come.

A post and each of its comments scores 10, and 1 less each time another 24 hours have passed since it was written, but
never less than 0. A post is active until the sum of these is 0. Then it is forgotten for good, with its comments.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass, field

DAY_MS = 86_400_000
FULL_SCORE = 10

Top = tuple[int, str, int, int]
"""A post in the answer: its id, its writer's name, its score, and how many others have commented on it."""

_Place = tuple[int, int, int, int]


@dataclass(slots=True)
class ActivePost:
    """A post whose score is above 0.

    Attributes:
        at_ms: when it was written, milliseconds since 1970.
        user_id: who wrote it.
        user: the name of its writer.
        comments: when each related comment was written, by the id of the comment, in the order in which they came.
        commenters: who wrote them, without the writer of the post.
    """

    at_ms: int
    user_id: int
    user: str
    comments: dict[int, int] = field(default_factory=dict)
    commenters: set[int] = field(default_factory=set)


class ActiveScores:
    """All active posts in the order of their rank.

    Args:
        now_ms: the moment, milliseconds since 1970.
        posts: the posts that are active then.

    Attributes:
        posts: the active posts by id.
        changed: the ids of the posts that came, got a comment, or ended.
    """

    def __init__(self, now_ms: int, posts: Iterable[tuple[int, ActivePost]] = ()) -> None:
        self.now_ms = now_ms
        self.posts: dict[int, ActivePost] = {}
        self.changed: set[int] = set()
        self._post_of: dict[int, int] = {}
        self._scores: dict[int, int] = {}
        self._ranked: list[_Place] = []
        # When which post loses a point next, and when what loses it was written.
        self._losses: list[tuple[int, int, int]] = []
        for number, post in posts:
            self._add(number, post)
        self._ranked.sort()
        heapq.heapify(self._losses)

    def advance(self, now_ms: int) -> None:
        """Let time pass; a moment before the present one is ignored."""
        while self._losses and self._losses[0][0] <= now_ms:
            due_ms, written_ms, number = heapq.heappop(self._losses)
            if due_ms < written_ms + FULL_SCORE * DAY_MS:
                heapq.heappush(self._losses, (due_ms + DAY_MS, written_ms, number))
            self._rank(number, self._scores[number] - 1)
            if not self._scores[number]:
                self._forget(number)
        self.now_ms = max(self.now_ms, now_ms)

    def post(self, number: int, user_id: int, user: str) -> None:
        """Add a post that is written now."""
        post = ActivePost(self.now_ms, user_id, user)
        self.posts[number], self._scores[number] = post, FULL_SCORE
        insort(self._ranked, self._place(number))
        heapq.heappush(self._losses, (self.now_ms + DAY_MS, self.now_ms, number))
        self.changed.add(number)

    def comment(self, number: int, user_id: int, *, replied: int | None, commented: int | None) -> None:
        """Add a comment that is written now; ignore it if its post is not active.

        Args:
            number: its id.
            user_id: who writes it.
            replied: the comment that it replies to, or None.
            commented: the post that it replies to, or None.
        """
        about = commented if commented is not None else self._post_of.get(replied or 0)
        if about is None or about not in self.posts:
            return
        post = self.posts[about]
        self._unrank(about)
        post.comments[number] = self.now_ms
        if user_id != post.user_id:
            post.commenters.add(user_id)
        self._post_of[number] = about
        self._scores[about] += FULL_SCORE
        insort(self._ranked, self._place(about))
        heapq.heappush(self._losses, (self.now_ms + DAY_MS, self.now_ms, about))
        self.changed.add(about)

    def top(self, count: int) -> list[Top]:
        """Return the posts with the highest scores.

        Of posts with the same score the latest is first, then the one with the latest comment, then the one with the
        lower id.
        """
        best = [place[3] for place in self._ranked[:count]]
        return [(each, self.posts[each].user, self._scores[each], len(self.posts[each].commenters)) for each in best]

    def _add(self, number: int, post: ActivePost) -> None:
        self.posts[number] = post
        self._post_of.update(dict.fromkeys(post.comments, number))
        score = 0
        for written_ms in (post.at_ms, *post.comments.values()):
            days = (self.now_ms - written_ms) // DAY_MS
            if days < FULL_SCORE:
                score += FULL_SCORE - days
                self._losses.append((written_ms + (days + 1) * DAY_MS, written_ms, number))
        self._scores[number] = score
        self._ranked.append(self._place(number))

    def _forget(self, number: int) -> None:
        self._unrank(number)
        for comment in self.posts.pop(number).comments:
            del self._post_of[comment]
        del self._scores[number]
        self.changed.add(number)

    def _rank(self, number: int, score: int) -> None:
        self._unrank(number)
        self._scores[number] = score
        insort(self._ranked, self._place(number))

    def _unrank(self, number: int) -> None:
        del self._ranked[bisect_left(self._ranked, self._place(number))]

    def _place(self, number: int) -> _Place:
        post = self.posts[number]
        last_ms = next(reversed(post.comments.values()), 0)
        return (-self._scores[number], -post.at_ms, -last_ms, number)
