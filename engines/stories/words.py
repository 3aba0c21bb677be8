"""Texts as vectors of words, and the key of a vector by locality-sensitive hashing (LSH).

There is no table of how rare each word is, as TF/IDF has it: all keys would share that state. Frequent words are short,
so a word weighs more if it is longer. All numbers are whole, so that every place computes the same.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from hashlib import blake2b
from html import unescape
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

PLANES = 12
KEYS = 2**PLANES
SEED = 1

Whole = npt.NDArray[np.int64]
"""Whole numbers of 64 bits; docstrings give the shape."""

_NO_WORDS = re.compile(r"https?:\S*|@\w+|\bRT\b")
_WORD = re.compile(r"[^\W_]{3,}")
_WEIGHT_MOST = 6
_NUMBER_BYTES = 8
_BITS = 1 << np.arange(PLANES, dtype=np.int64)


class TextVector(NamedTuple):
    """What is compared of a text.

    Attributes:
        words: the numbers of its words, ascending, each once; shape (words,).
        weights: how often each occurs, times the weight of the word; shape (words,).
    """

    words: Whole
    weights: Whole

    @property
    def square(self) -> int:
        """The square of its length."""
        return int(self.weights @ self.weights)


def vector_of(text: str) -> TextVector:
    """Return the vector of a text: its words of three letters or more, without addresses, names of users and ``RT``."""
    weighed = sorted((_hashed(word)[0], count * _weight(word)) for word, count in _counted(text).items())
    pairs: Whole = np.array(weighed, dtype=np.int64).reshape(-1, 2)
    return TextVector(pairs[:, 0].copy(), pairs[:, 1].copy())


def key_of(text: str) -> int:
    """Return the key of a text, in [0, KEYS): a bit for each plane, by the side of it on which the vector is.

    The planes are random, through the origin. Two texts are on the same side of one with probability
    1 - angle / pi. A text without words has key 0.
    """
    sides: Whole = np.zeros(PLANES, dtype=np.int64)
    for word, count in _counted(text).items():
        sides += count * _weight(word) * _hashed(word)[1]
    return int(_BITS @ (sides > 0))


def _counted(text: str) -> Counter[str]:
    return Counter(_WORD.findall(_NO_WORDS.sub(" ", unescape(text)).lower()))


def _weight(word: str) -> int:
    """Return 1 for three letters, up to 6 for eight or more."""
    return min(len(word) - 2, _WEIGHT_MOST)


@lru_cache(maxsize=200_000)
def _hashed(word: str) -> tuple[int, Whole]:
    """Return the number of a word, and its coordinate in the normal of each plane: uniform in [-2^15, 2^15)."""
    size = _NUMBER_BYTES + 2 * PLANES
    digest = blake2b(word.encode(), digest_size=size, salt=SEED.to_bytes(16, "little")).digest()
    number = int.from_bytes(digest[:_NUMBER_BYTES], "little", signed=True)
    return number, np.frombuffer(digest[_NUMBER_BYTES:], dtype="<i2").astype(np.int64)
