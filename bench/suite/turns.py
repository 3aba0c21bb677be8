"""Which side of a row is measured when, and what the figures of all turns say. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import median

OURS = "spillway"


@dataclass(frozen=True, slots=True)
class Goal:
    """What Spillway's figure should be, or its ratio to that of another side.

    Attributes:
        figure: its name, with the unit.
        side: the other side; None: the figure itself counts.
        bound: of the ratio, or of the figure.
        at_least: whether more is better; otherwise less is.
    """

    figure: str
    side: str | None
    bound: float
    at_least: bool = True

    def holds(self, value: float) -> bool:
        """Return whether a ratio, or a figure, is within the goal."""
        return value >= self.bound if self.at_least else value <= self.bound

    def __str__(self) -> str:
        """Return it in words."""
        of = "" if self.side is None else f" times {self.side}"
        return f"{'at least' if self.at_least else 'at most'} {self.bound:g}{of}"


@dataclass(frozen=True, slots=True)
class Sample:
    """What one turn of one side found.

    Attributes:
        figures: by name.
        answer: of what was computed; equal on all sides that compute the same. Empty: nothing to compare.
    """

    figures: Mapping[str, float]
    answer: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle value, the least and the greatest."""

    middle: float
    least: float
    most: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        return cls(median(values), min(values), max(values))


SELDOM_TURNS = 2
"""How often a side is measured that is compared with nothing."""


def order(sides: Sequence[str], turns: int, seldom: Set[str] = frozenset()) -> list[tuple[int, str]]:
    """Return (turn, side) in the order of measurement: A B, then B A, and so on, so that drift favours no side.

    Args:
        sides: their names.
        turns: of each side.
        seldom: of these sides there are at most ``SELDOM_TURNS`` turns.
    """
    return [
        (turn, side)
        for turn in range(turns)
        for side in (sides if turn % 2 == 0 else sides[::-1])
        if turn < SELDOM_TURNS or side not in seldom
    ]


Turns = Sequence[Mapping[str, Sample]]
"""Of each turn the sample of each side that was measured."""


def spread(figure: str, side: str, turns: Turns) -> Spread:
    """Return a side's figure over all turns."""
    return Spread.of([turn[side].figures[figure] for turn in turns if side in turn])


def found(goal: Goal, turns: Turns) -> Spread:
    """Return what a goal is about: a figure, or a ratio, whose two figures are of the same turn."""
    if goal.side is None:
        return spread(goal.figure, OURS, turns)
    return Spread.of([turn[OURS].figures[goal.figure] / turn[goal.side].figures[goal.figure] for turn in turns])


def wrong_answers(turns: Turns) -> list[str]:
    """Return which sides computed something else than Spillway; those without an answer are not compared."""
    wrong = {
        side
        for turn in turns
        for side, sample in turn.items()
        if sample.answer and turn[OURS].answer and sample.answer != turn[OURS].answer
    }
    return sorted(wrong)
