"""The correct first stories: each text is compared with the last hundred before it that have its key, word by word.

It shares no code with the query but the type of a text, and uses no arrays.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from html import unescape
from math import sqrt
from typing import Any

from engines.stories.texts import ShortText


def stories_of(texts: Iterable[ShortText], last: int = 100) -> list[dict[str, Any]]:
    """Return the rows of the query, by number."""
    rows = []
    before: dict[int, list[dict[str, int]]] = {}
    for each in texts:
        words = weights_of(each.text)
        if not words:
            continue
        same = before.setdefault(each.key, [])
        distance = min((far(words, other) for other in same[-last:]), default=1.0)
        if distance > 0.9:
            rows.append(
                {"number": each.number, "at": each.at, "key": each.key, "text": each.text, "distance": distance}
            )
        same.append(words)
    return rows


def weights_of(text: str) -> dict[str, int]:
    """Return the words of three letters and more: one counts two less than it has letters, up to six, each time."""
    weights: dict[str, int] = {}
    for part in re.split(r"\W|_", plain(text)):
        if len(part) >= 3:
            weights[part] = weights.get(part, 0) + min(len(part), 8) - 2
    return weights


def plain(text: str) -> str:
    """Return a text in small letters without addresses, names of users, and the RT of texts that are passed on."""
    text = re.sub(r"https?:[^\s]*", " ", unescape(text))
    return re.sub(r"@[\w]+|\bRT\b", " ", text).lower()


def far(one: dict[str, int], other: dict[str, int]) -> float:
    """Return 1 - the cosine of the angle between two texts."""
    dot = sum(weight * other[word] for word, weight in one.items() if word in other)
    squares = sum(weight**2 for weight in one.values()) * sum(weight**2 for weight in other.values())
    return max(0.0, 1.0 - dot / sqrt(squares))
