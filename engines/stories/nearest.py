"""The operator of first-story detection: how far a text is from the last texts of its key.

The distance is 1 - the cosine of the angle between both vectors. A text that is farther than ``FAR`` from all texts
that are kept of its key is a first story; so is the first text of a key. A text without words is none, and is not kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from engines.stories.words import TextVector, Whole

LAST = 100
"""So many texts of a key are kept."""

FAR = 0.9
"""A text at this distance shares little more than a short word with another one."""


def _none() -> Whole:
    return np.empty(0, dtype=np.int64)


@dataclass(slots=True)
class KeptTexts:
    """The last texts of one key: all of its state. It may be moved between any two texts.

    Attributes:
        sizes: how many words each text has, the oldest first; shape (texts,).
        words: the words of all texts, one text after another; shape (sum of sizes,).
        weights: of the words; the same shape.
        squares: the square of the length of each text's vector; shape (texts,).
    """

    sizes: Whole = field(default_factory=_none)
    words: Whole = field(default_factory=_none)
    weights: Whole = field(default_factory=_none)
    squares: Whole = field(default_factory=_none)

    def __len__(self) -> int:
        return len(self.sizes)

    def tell(self, text: TextVector, last: int = LAST, far: float = FAR) -> float | None:
        """Compare a text with those that are kept, and keep it.

        Args:
            text: the next text of the key.
            last: so many texts are kept.
            far: the distance above which a text is a first story.

        Returns:
            The distance of the nearest text if this is a first story (1 if there is none); None if it is no story.
        """
        if not len(text.words):
            return None
        distance = self.nearest(text)
        self._keep(text, last)
        return distance if distance > far else None

    def nearest(self, text: TextVector) -> float:
        """Return the distance of the nearest text, in [0, 1]; 1 if there is none."""
        if not len(self):
            return 1.0
        places = np.searchsorted(text.words, self.words)
        places[places == len(text.words)] = 0
        common = text.words[places] == self.words
        products = self.weights[common] * text.weights[places[common]]
        owners = np.repeat(np.arange(len(self)), self.sizes)[common]
        dots = np.bincount(owners, weights=products, minlength=len(self))
        # Products and squares are whole numbers below 2^53, so each cosine is rounded in one way only.
        return max(0.0, 1.0 - float((dots / np.sqrt(self.squares * text.square)).max()))

    def _keep(self, text: TextVector, last: int) -> None:
        gone = max(0, len(self) + 1 - last)
        first = int(self.sizes[:gone].sum())
        self.sizes = np.append(self.sizes[gone:], len(text.words))
        self.words = np.concatenate((self.words[first:], text.words))
        self.weights = np.concatenate((self.weights[first:], text.weights))
        self.squares = np.append(self.squares[gone:], text.square)


class StoryLane:
    """The operator in one lane: the state of each key that is there."""

    def __init__(self) -> None:
        self._kept: dict[int, KeptTexts] = {}

    @property
    def texts(self) -> int:
        """How many texts are kept."""
        return sum(map(len, self._kept.values()))

    def tell(self, key: int, text: TextVector, last: int = LAST, far: float = FAR) -> bool:
        """Return whether a text of a key is a first story here, and keep it."""
        if key not in self._kept:
            self._kept[key] = KeptTexts()
        return self._kept[key].tell(text, last, far) is not None

    def give(self, keys: Iterable[int]) -> dict[int, KeptTexts]:
        """Return the state of those of these keys that have one, and forget it."""
        return {key: self._kept.pop(key) for key in keys if key in self._kept}

    def take(self, kept: dict[int, KeptTexts]) -> None:
        """Go on with the state of keys.

        Raises:
            ValueError: a key has a state here already. Nothing has changed.
        """
        if both := sorted(self._kept.keys() & kept.keys()):
            raise ValueError(f"the state of key {both[0]} is here already")
        self._kept |= kept
