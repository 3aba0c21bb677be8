"""Made-up short texts for machines without tweets: topics begin, are talked about for a while, and fade.

A third of the texts is chatter without a topic. Of the others half repeat a text of their topic, as people do who pass
it on, and half are new ones with some of the topic's own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random

from engines.stories.texts import ShortText, numbered

_FIRST = datetime(2013, 4, 15, 12, tzinfo=UTC)
_GAP_S = 2.0
_SYLLABLES = ("ba", "do", "fi", "gur", "ka", "lem", "mo", "nis", "pa", "ro", "su", "ter", "vi", "wen", "zo")
_COMMON_WORDS = 2_000
_TOPIC_WORDS = 12
_CHATTER = 1 / 3
_REPEATED = 0.5
_TEXTS_A_TOPIC = 40
_LATEST = 8
"""So many topics are talked about at a time, the latest most."""


def generate_texts(count: int, seed: int) -> Iterator[ShortText]:
    """Yield ``count`` texts by time; equal seeds give equal texts."""
    yield from numbered(_texts(count, Random(seed)))  # noqa: S311  # no secret


def _texts(count: int, draw: Random) -> Iterator[tuple[datetime, str]]:
    common = [_word(draw) for _ in range(_COMMON_WORDS)]
    topics: list[_Topic] = []
    at = _FIRST
    for _ in range(count):
        at += timedelta(milliseconds=int(draw.expovariate(1 / _GAP_S) * 1000))
        if not topics or draw.random() < 1 / _TEXTS_A_TOPIC:
            topics = [*topics[1 - _LATEST :], _Topic(draw)]
        if draw.random() < _CHATTER:
            yield at, " ".join(_chatter(common, draw, 9))
        else:
            yield at, topics[int(len(topics) * draw.random() ** 0.5)].text(common, draw)


class _Topic:
    """What happened: words of its own, and the texts about it so far."""

    def __init__(self, draw: Random) -> None:
        self._words = [_word(draw) for _ in range(_TOPIC_WORDS)]
        self._said: list[str] = []

    def text(self, common: list[str], draw: Random) -> str:
        """Return another text about it."""
        if self._said and draw.random() < _REPEATED:
            return f"RT @{_word(draw)}: {draw.choice(self._said)}"
        words = [*draw.sample(self._words, k=draw.randint(3, 6)), *_chatter(common, draw, 5)]
        draw.shuffle(words)
        self._said.append(" ".join(words))
        return self._said[-1]


def _chatter(common: list[str], draw: Random, mean: int) -> list[str]:
    """Return common words, the first ones more often."""
    return [common[int(len(common) * draw.random() ** 3)] for _ in range(draw.randint(mean - 3, mean + 3))]


def _word(draw: Random) -> str:
    return "".join(draw.choices(_SYLLABLES, k=draw.randint(2, 4)))
