"""To which place a query's state was copied ahead of a move."""

from __future__ import annotations

from typing import Final

from gateway.query.moving.pause import FORGET_S
from infra.clock import Clock

FRESH_S: Final = FORGET_S
"""So long after it was copied ahead, the state has changed too much: it is copied again before the query moves."""


class CopiedAhead:
    """Remembers the last copy that was made ahead of a move.

    Args:
        clock: time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._target = ""
        self._copied_s = 0.0

    def done(self, target: str) -> None:
        """Note that what can be copied ahead of a move to ``target`` is copied."""
        self._target, self._copied_s = target, self._clock.now()

    def forget(self) -> None:
        """Note that the next move needs a new copy."""
        self._target = ""

    def is_for(self, target: str) -> bool:
        """Return whether the query may move to ``target`` now: the copy is there, and is not old."""
        return self._target == target and self._clock.now() - self._copied_s <= FRESH_S
