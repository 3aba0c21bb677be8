"""The posts and comments of a social network as one stream: the reader of the challenge's files.

The files have one line for each post (``ts|post_id|user_id|post|user``) and each comment
(``ts|comment_id|user_id|comment|user|comment_replied|post_commented``), plain or gzip, each in order of time.
"""

from __future__ import annotations

import gzip
import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

import msgspec

SCHEMA_DDL = (
    "number BIGINT, at TIMESTAMP, kind STRING, id BIGINT, user_id BIGINT, user STRING, text STRING, "
    "comment_replied BIGINT, post_commented BIGINT"
)


class SocialEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A post, a comment, or the end of the stream, in the columns of ``SCHEMA_DDL``.

    Attributes:
        number: its place in the stream, from 0 on.
        at: when it happened, UTC.
        kind: an ``end`` only makes time pass: what is known before it is final.
        id: of the post or comment; no post has the id of a comment.
        user_id: who wrote it.
        user: the name of the writer.
        text: what was written.
        comment_replied: the comment that a comment replies to, if it does not reply to a post.
        post_commented: the post that a comment replies to, if it does not reply to a comment.
    """

    number: int
    at: datetime
    kind: Literal["post", "comment", "end"]
    id: int = 0
    user_id: int = 0
    user: str = ""
    text: str = ""
    comment_replied: int | None = None
    post_commented: int | None = None


def read_events(folder: Path) -> Iterator[SocialEvent]:
    """Yield the posts and comments of a folder by time, of one time by id, and then one ``end``.

    Args:
        folder: has ``posts.dat`` and ``comments.dat``, or the same with ``.gz``.

    Raises:
        FileNotFoundError: the folder lacks one of the files.
        ValueError: a line has too few fields, or a field is no number or time; the message names file and line.
    """
    posts, comments = (_events(_file(folder, name), name) for name in ("posts", "comments"))
    yield from numbered(heapq.merge(posts, comments, key=lambda event: (event.at, event.id)))


def numbered(events: Iterable[SocialEvent]) -> Iterator[SocialEvent]:
    """Yield events with their numbers, and then one ``end`` a millisecond after the last one."""
    number, last = 0, None
    for event in events:
        yield msgspec.structs.replace(event, number=number)
        number, last = number + 1, event.at
    if last is not None:
        yield SocialEvent(number=number, at=last + timedelta(milliseconds=1), kind="end")


def _file(folder: Path, name: str) -> Path:
    found = next((path for path in (folder / f"{name}.dat", folder / f"{name}.dat.gz") if path.exists()), None)
    if found is None:
        raise FileNotFoundError(f"{folder} has no {name}.dat and no {name}.dat.gz")
    return found


def _events(path: Path, name: str) -> Iterator[SocialEvent]:
    read = _post if name == "posts" else _comment
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield read(line.rstrip("\n").split("|"))
            except ValueError as error:
                raise ValueError(f"{path}:{number}: not a line of {name}: {error}") from error


def _post(fields: list[str]) -> SocialEvent:
    at, post, user_id, *text, user = fields
    return SocialEvent(
        number=0,
        at=datetime.fromisoformat(at),
        kind="post",
        id=int(post),
        user_id=int(user_id),
        user=user,
        text="|".join(text),
    )


def _comment(fields: list[str]) -> SocialEvent:
    at, comment, user_id, *text, user, replied, commented = fields
    return SocialEvent(
        number=0,
        at=datetime.fromisoformat(at),
        kind="comment",
        id=int(comment),
        user_id=int(user_id),
        user=user,
        text="|".join(text),
        comment_replied=int(replied) if replied else None,
        post_commented=int(commented) if commented else None,
    )
