"""The move of one part of a keyed query: what happens next. A pure state machine; see docs/decisions/0120."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

HOLD_AFTER_S: Final = 1.0
"""For so long after it was opened in the next place, a part is given the chance to catch up without a pause."""
FOLLOW_MOST_S: Final = 10.0
"""In the next place a part has so long to catch up with the present one; then it is held, however far it is behind."""
RETURN_HELD_MOST_S: Final = 60.0
"""If home has repeated nothing for so long while a part that returns is held, the whole query is opened again."""


class MovePhase(Enum):
    """The phase of a move."""

    OPENING = "its state is copied, and it is opened in the next place"
    FOLLOWING = "it is open in both places, and the next one repeats what the present one has done"
    HELD = "the same, and the present place gets no more runs"
    SWITCHED = "the next place is the present one now"
    DROPPED = "it stays where it was"


class Step(Enum):
    """The instruction for what is done next."""

    WAIT = "wait"
    HOLD = "give the present place no more runs"
    SWITCH = "go on in the next place only"
    DROP = "go on in the present place only"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The time that a move may take.

    Attributes:
        hold_after_s: see `HOLD_AFTER_S`.
        follow_most_s: see `FOLLOW_MOST_S`.
        held_most_s: a held part goes on in its present place once the next one has repeated nothing for so long.
    """

    hold_after_s: float = HOLD_AFTER_S
    follow_most_s: float = FOLLOW_MOST_S
    held_most_s: float


class PartMove:
    """Decides how the move of one part goes on. The caller carries out each step before it asks for the next one.

    The present place answers for the part until ``SWITCH``. Before that the next place may end, fail or be slow, and
    nothing is lost by it: it is forgotten. ``SWITCH`` is given only when both places have done the same runs.

    Args:
        terms: how long it may take.

    Attributes:
        phase: its phase.
        reason: why it was dropped; else empty.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._since_s, self._least_lag_runs = 0.0, 0
        self.phase = MovePhase.OPENING
        self.reason = ""

    def opened(self, at_s: float) -> None:
        """Note that the part is open in the next place, too.

        Raises:
            ValueError: it is open there already, or the move has ended.
        """
        if self.phase is not MovePhase.OPENING:
            raise ValueError(f"a part cannot be opened in its next place now: {self.phase.value}")
        self.phase, self._since_s = MovePhase.FOLLOWING, at_s

    def step(self, at_s: float, *, lag_runs: int, wanted: bool, trouble: str = "") -> Step:
        """Return what is done next.

        Args:
            at_s: now.
            lag_runs: the runs that the present place has answered, and the next place has not.
            wanted: the part is still to go there.
            trouble: why it cannot go on there; empty if it can.

        Raises:
            ValueError: the move has ended.
        """
        if self.phase in (MovePhase.SWITCHED, MovePhase.DROPPED):
            raise ValueError(f"the move of the part has ended: {self.phase.value}")
        if trouble or not wanted:
            return self._drop(trouble or "it is to be elsewhere")
        if self.phase is MovePhase.OPENING:
            return Step.WAIT
        if not lag_runs:
            self.phase = MovePhase.SWITCHED
            return Step.SWITCH
        if self.phase is MovePhase.HELD:
            return self._held(at_s, lag_runs)
        most_s = self._terms.hold_after_s if lag_runs == 1 else self._terms.follow_most_s
        if at_s - self._since_s < most_s:
            return Step.WAIT
        self.phase, self._since_s, self._least_lag_runs = MovePhase.HELD, at_s, lag_runs
        return Step.HOLD

    def _held(self, at_s: float, lag_runs: int) -> Step:
        # The present place may answer one run more, so it may first be further behind.
        if lag_runs < self._least_lag_runs:
            self._since_s, self._least_lag_runs = at_s, lag_runs
        for_s = at_s - self._since_s
        if for_s <= self._terms.held_most_s:
            return Step.WAIT
        return self._drop(f"it is {lag_runs} runs behind there, and repeated none of them for {for_s:.1f} s")

    def _drop(self, reason: str) -> Step:
        self.phase, self.reason = MovePhase.DROPPED, reason
        return Step.DROP
