"""The least number of instances that keeps a buffer limit with a required probability (section V-C, Figure 5).

Formulas exist for M/M/c and M/D/c only (``stationary``); ``loadtable`` simulates other queues.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BufferGoal:
    """The user's goal.

    Attributes:
        limit_events: BL, the most events in the buffer; those being processed count.
        probability: P_required, the part of the time for which the limit must hold.

    Raises:
        ValueError: a value is impossible.
    """

    limit_events: int
    probability: float

    def __post_init__(self) -> None:
        if self.limit_events < 0 or not 0 < self.probability < 1:
            raise ValueError(f"a limit of {self.limit_events} events with probability {self.probability:g} is no goal")


def calculate_degree(
    within: Callable[[int], float], goal: BufferGoal, *, current: int, most: int
) -> tuple[int, float, bool]:
    """Return the least number of instances that keeps the goal (Figure 5).

    As in the paper, the search starts at the current degree and goes up while the degree is too small, down while it is
    enough. Q = 0 counts as kept, which line 4 of the figure leaves out, against the text; and there is a least and a
    greatest degree.

    Args:
        within: P(Q <= BL) for a number of instances; never less for more instances.
        goal: the limit to keep.
        current: degree to start from.
        most: greatest degree.

    Returns:
        The degree, P(Q <= BL) there, and whether that is enough.
    """
    degree = min(max(current, 1), most)
    probability = within(degree)
    if probability < goal.probability:
        while probability < goal.probability and degree < most:
            degree += 1
            probability = within(degree)
        return degree, probability, probability >= goal.probability
    while degree > 1 and (fewer := within(degree - 1)) >= goal.probability:
        degree, probability = degree - 1, fewer
    return degree, probability, True
