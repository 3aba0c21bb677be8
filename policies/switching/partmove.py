"""The move of one part of a keyed query: what happens next. A pure state machine; see docs/decisions/0120."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

HOLD_AFTER_S: Final = 1.0
"""For so long after it was opened in the next place, a part is given the chance to catch up without a pause."""
FOLLOW_MOST_S: Final = 30.0
"""In the next place a part has so long to catch up with the present one, which is not held yet."""
RETURN_HELD_MOST_S: Final = 60.0
"""A part that returns home is held for at most so long; then the whole query is opened again."""


class Phase(Enum):
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
        held_most_s: after so long without runs the part goes on in the present place.
        must: the part must leave: if it does not catch up in time, it is held, instead of staying.
    """

    hold_after_s: float = HOLD_AFTER_S
    follow_most_s: float = FOLLOW_MOST_S
    held_most_s: float
    must: bool


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
        self._since_s = 0.0
        self.phase = Phase.OPENING
        self.reason = ""

    def opened(self, at_s: float) -> None:
        """Note that the part is open in the next place, too.

        Raises:
            ValueError: it is open there already, or the move has ended.
        """
        if self.phase is not Phase.OPENING:
            raise ValueError(f"a part cannot be opened in its next place now: {self.phase.value}")
        self.phase, self._since_s = Phase.FOLLOWING, at_s

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
        if self.phase in (Phase.SWITCHED, Phase.DROPPED):
            raise ValueError(f"the move of the part has ended: {self.phase.value}")
        if trouble or not wanted:
            return self._drop(trouble or "it is to be elsewhere")
        if self.phase is Phase.OPENING:
            return Step.WAIT
        if not lag_runs:
            self.phase = Phase.SWITCHED
            return Step.SWITCH
        if self.phase is Phase.FOLLOWING:
            return self._followed(at_s, lag_runs)
        if at_s - self._since_s > self._terms.held_most_s:
            return self._drop(f"its events were held for {at_s - self._since_s:.1f} s, and it has not caught up there")
        return Step.WAIT

    def _followed(self, at_s: float, lag_runs: int) -> Step:
        late = at_s - self._since_s > self._terms.follow_most_s
        if late and not self._terms.must:
            return self._drop(f"it did not catch up there within {self._terms.follow_most_s:.0f} s")
        if late or (lag_runs == 1 and at_s - self._since_s >= self._terms.hold_after_s):
            self.phase, self._since_s = Phase.HELD, at_s
            return Step.HOLD
        return Step.WAIT

    def _drop(self, reason: str) -> Step:
        self.phase, self.reason = Phase.DROPPED, reason
        return Step.DROP
