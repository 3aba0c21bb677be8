"""Short texts as one stream: the reader of tweets about crises.

A file has a header, and then a line for each tweet, which begins with its id and its text (the files of CrisisLexT6 and
CrisisLexT26). There is no time in it: the id of a tweet has the time at which it was written.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from engines.stories.words import key_of

SCHEMA_DDL = "number BIGINT, at TIMESTAMP, key INT, text STRING"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_IDS_BEGIN_MS = 1_288_834_974_657
_ID_BITS_BELOW_MS = 22


class ShortText(msgspec.Struct, frozen=True, kw_only=True):
    """A text in the columns of ``SCHEMA_DDL``.

    Attributes:
        number: its place in the stream, from 0 on.
        at: when it was written, UTC.
        key: of the text, by ``engines.stories.words.key_of``: texts with different keys are never compared.
        text: what was written.
    """

    number: int
    at: datetime
    key: int
    text: str


def read_tweets(folder: Path) -> Iterator[ShortText]:
    """Yield the tweets of all files in a folder and in folders below it, by id; one that is in two files comes once.

    Args:
        folder: has files ``*.csv`` or ``*.csv.gz``.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: a line is no tweet; the message names file and line.
    """
    files = sorted([*folder.rglob("*.csv"), *folder.rglob("*.csv.gz")])
    if not files:
        raise FileNotFoundError(f"{folder} has no *.csv and no *.csv.gz")
    found: dict[int, str] = {}
    for path in files:
        for tweet, text in _tweets(path):
            found.setdefault(tweet, text)
    yield from numbered((written(tweet), found[tweet]) for tweet in sorted(found))


def numbered(texts: Iterable[tuple[datetime, str]]) -> Iterator[ShortText]:
    """Yield texts with their numbers and keys.

    Args:
        texts: time and text, by time.
    """
    for number, (at, text) in enumerate(texts):
        yield ShortText(number=number, at=at, key=key_of(text), text=text)


def written(tweet: int) -> datetime:
    """Return when the tweet with an id was written, UTC."""
    return _EPOCH + timedelta(milliseconds=(tweet >> _ID_BITS_BELOW_MS) + _IDS_BEGIN_MS)


def _tweets(path: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(path, "rt", newline="") if path.suffix == ".gz" else path.open(newline="") as lines:
        rows = csv.reader(lines)
        next(rows, None)
        for fields in rows:
            try:
                tweet, text, *_ = fields
                yield int(tweet.strip("'")), text
            except ValueError as error:
                raise ValueError(f"{path}:{rows.line_num}: not a tweet: {error}") from error
