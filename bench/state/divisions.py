"""The ways to divide keys that the table compares: key grouping, PKG, LPTF, and DLB by the splitter of queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from policies.arrays import Array, IntArray
from policies.keys.balancing import BalanceTerms, Pick
from policies.keys.imbalance import imb_score, lane_loads
from policies.keys.placement import by_hash, by_two_choices, longest_first
from policies.keys.splitter import KeySplitter

KEYS = 4096
LANES = ("home", "vm-1", "vm-2", "vm-3", "vm-4")

THETA = 15.0
"""In percent, as in the paper."""

MOVED_MOST = 0.05

DLB: tuple[tuple[str, Pick, str], ...] = (
    ("DLB-L", "light", "10 times, 47.5 % of the keys"),
    ("DLB-H", "heavy", "RSTD about 40 % at 1.5; 10 times, 5 % of the keys"),
)
"""Its two picks, and what the paper says of them."""


class Division(Protocol):
    """A way to divide the events of keys among lanes."""

    def divide(self, keys: IntArray) -> IntArray:
        """Return the lane of each event."""

    def decide(self) -> int:
        """Return how many keys move, now that the events of a window are divided."""

    @property
    def lane_of(self) -> IntArray:
        """The lane of each key for the next window; for PKG the first of its two."""


class Hashed:
    """KG: key modulo lanes. No key ever moves."""

    def __init__(self, lanes: int = len(LANES)) -> None:
        self.lane_of = by_hash(KEYS, lanes)

    def divide(self, keys: IntArray) -> IntArray:
        """Return the lane of each event."""
        return self.lane_of[keys]

    def decide(self) -> int:
        """Return 0."""
        return 0


class TwoChoices(Hashed):
    """PKG: each event goes to one of two lanes. The lanes' events are counted anew after each decision, as for DLB."""

    def divide(self, keys: IntArray) -> IntArray:
        """Return the lane of each event."""
        return by_two_choices(keys, np.zeros(len(LANES)))


class LongestFirst:
    """LPTF: all keys are placed anew when the score exceeds theta.

    Args:
        least: a key counts as so many events at least. With 0, all keys without an event go to one lane.
    """

    def __init__(self, least: float = 0.0) -> None:
        self.lane_of = by_hash(KEYS, len(LANES))
        self._least = least
        self._loads: Array = np.zeros(KEYS)

    def divide(self, keys: IntArray) -> IntArray:
        """Return the lane of each event."""
        self._loads = loads_of(keys)
        return self.lane_of[keys]

    def decide(self) -> int:
        """Return how many keys have another lane than before."""
        if imb_score(lane_loads(self._loads, self.lane_of, len(LANES))) <= THETA:
            return 0
        before, self.lane_of = self.lane_of, longest_first(np.maximum(self._loads, self._least), len(LANES))
        return int(np.count_nonzero(before != self.lane_of))


class Balanced:
    """DLB, by the splitter that queries have."""

    def __init__(self, terms: BalanceTerms) -> None:
        self._splitter = KeySplitter(KEYS, LANES, terms)

    @property
    def lane_of(self) -> IntArray:
        """The lane of each key for the next window."""
        return self._splitter.lane_of

    def divide(self, keys: IntArray) -> IntArray:
        """Return the lane of each event; the splitter counts them."""
        return self._splitter.split(keys)

    def decide(self) -> int:
        """Return how many keys have moved."""
        found = self._splitter.end_window({})
        if found is None:
            raise ValueError("a window has too few events to be judged: make it longer")
        self._splitter.moved(found.moves)
        return len(found.moves)


def divisions() -> Iterator[tuple[str, str, Division]]:
    """Return the name of each division, what the paper says of it, and the division."""
    yield "KG", "RSTD 3 % and 77 %", Hashed()
    yield "PKG", "13.4 % wrong answers", TwoChoices()
    yield "LPTF", "12 times, 76 % of the keys on average (unmodified data)", LongestFirst()
    for name, pick, paper in DLB:
        yield name, paper, Balanced(BalanceTerms(theta=THETA, pick=pick, moved_most=1))
        bounded = BalanceTerms(theta=THETA, pick=pick, moved_most=MOVED_MOST)
        default = " (default)" if bounded == BalanceTerms() else ""
        yield f"{name}, at most {100 * MOVED_MOST:.0f} % of the keys{default}", "", Balanced(bounded)


def loads_of(keys: IntArray) -> Array:
    """Return keys_load of events: shape (KEYS,), in events."""
    return np.bincount(keys, minlength=KEYS).astype(np.float64)
