"""P_s: which events open a selection, for whole runs at a time (Mayer et al., section IV-B and Figure 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policies.arrays import BoolArray
from policies.selections.streamtime import Int64Array


class OpeningRule(Protocol):
    """A predicate P_s, without state: what it needs of earlier events is handed to it."""

    def opens(self, times_ms: Int64Array, before_ms: int | None, first: int, matches: BoolArray | None) -> BoolArray:
        """Return which events of a run open a selection, shape (events,).

        Args:
            times_ms: the stream's time at each event, shape (events,); it never falls.
            before_ms: the same at the event before; None before the first event.
            first: the number of the run's first event.
            matches: whether each event meets the pattern's condition, shape (events,); None if it has none.
        """
        ...


@dataclass(frozen=True, slots=True)
class EachTime:
    """A sliding time window: the first event in each slot of ``slide_ms`` opens one (Figure 2, lines 2 to 9).

    Raises:
        ValueError: the slide is not above zero.
    """

    slide_ms: int

    def __post_init__(self) -> None:
        if self.slide_ms <= 0:
            raise ValueError(f"a window slides by more than {self.slide_ms} ms")

    def opens(self, times_ms: Int64Array, before_ms: int | None, first: int, matches: BoolArray | None) -> BoolArray:  # noqa: ARG002
        """See ``OpeningRule.opens``."""
        slots = times_ms // self.slide_ms
        before = np.empty_like(slots)
        before[1:] = slots[:-1]
        before[:1] = slots[:1] - 1 if before_ms is None else before_ms // self.slide_ms
        return np.asarray(slots > before, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class EachCount:
    """A sliding tuple window: each ``slide``-th event opens one, beginning with the first.

    Raises:
        ValueError: the slide is not above zero.
    """

    slide: int

    def __post_init__(self) -> None:
        if self.slide <= 0:
            raise ValueError(f"a window slides by more than {self.slide} events")

    def opens(self, times_ms: Int64Array, before_ms: int | None, first: int, matches: BoolArray | None) -> BoolArray:  # noqa: ARG002
        """See ``OpeningRule.opens``."""
        return np.asarray(np.arange(first, first + len(times_ms)) % self.slide == 0, dtype=np.bool_)


@dataclass(frozen=True, slots=True)
class EachMatch:
    """A pattern: each event that meets the condition of its first step opens a selection."""

    def opens(self, times_ms: Int64Array, before_ms: int | None, first: int, matches: BoolArray | None) -> BoolArray:  # noqa: ARG002
        """See ``OpeningRule.opens``.

        Raises:
            ValueError: there is no condition.
        """
        if matches is None:
            raise ValueError("a pattern needs to know which events meet its first condition")
        return matches
