"""A made-up social network for machines without the challenge's files.

The figures are near those of the challenge's first half year (18,083 posts and 39,212 comments in 187 days): two of
three events are comments, and 96 posts a day are active for ten days or more. What a comment replies to is drawn from
the latest writings, a tenth of the time from all of them: some comments meet posts that are not active any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from engines.snb.events import SocialEvent, numbered

GAP_S = 282.0

_FIRST = datetime(2010, 2, 1, 5, 12, 32, tzinfo=UTC)
_COMMENTS = 0.68
_LATEST = 200
_ANY_AGE = 0.1
_USERS = 3_000
_WORDS = ("about", "great", "photo", "thanks", "right", "maybe", "lol", "yes", "no", "fine")


def generate_events(count: int, seed: int, gap_s: float = GAP_S) -> Iterator[SocialEvent]:
    """Yield ``count`` posts and comments by time, and one ``end``; equal seeds give equal events.

    Args:
        count: how many posts and comments.
        seed: of the random numbers.
        gap_s: the mean time between two of them.
    """
    yield from numbered(_writings(count, Random(seed), gap_s))  # noqa: S311  # no secret


def _writings(count: int, draw: Random, gap_s: float) -> Iterator[SocialEvent]:
    at = _FIRST
    written: list[SocialEvent] = []
    for number in range(count):
        # Several in one second, as in a file of whole seconds.
        at += timedelta(seconds=int(draw.expovariate(1 / gap_s)) if draw.random() > 0.02 else 0)
        user = int(_USERS * draw.random() ** 2)
        event = SocialEvent(
            number=0,
            at=at,
            kind="post",
            id=1_000 + number,
            user_id=user,
            user=f"User {user}",
            text=" ".join(draw.choices(_WORDS, k=1 + int(draw.expovariate(0.1)))),
        )
        if written and draw.random() < _COMMENTS:
            event = _reply(event, _replied_to(written, draw))
        written.append(event)
        yield event


def _replied_to(written: list[SocialEvent], draw: Random) -> SocialEvent:
    if draw.random() < _ANY_AGE:
        return written[int(len(written) * draw.random())]
    return written[-1 - int(min(_LATEST, len(written)) * draw.random() ** 2)]


def _reply(event: SocialEvent, to: SocialEvent) -> SocialEvent:
    return SocialEvent(
        number=0,
        at=event.at,
        kind="comment",
        id=event.id,
        user_id=event.user_id,
        user=event.user,
        text=event.text,
        comment_replied=to.id if to.kind == "comment" else None,
        post_commented=to.id if to.kind == "post" else None,
    )
