"""How long a query's events would be held if it moved."""

from __future__ import annotations

from typing import Final

from infra.clock import Clock

_OPENING_S: Final = 2.0
"""What a pause lasts beside the copying, until a move has shown it."""
FORGET_S: Final = 60.0
"""How long the last copying is believed to tell how long the next one takes; then a move may be tried again."""


class PauseEstimate:
    """Learns from moves and from copying ahead.

    Args:
        clock: time.
        copies_while_held: what has changed since the last copy is copied while events are held.
    """

    def __init__(self, clock: Clock, *, copies_while_held: bool = True) -> None:
        self._clock = clock
        self._copies_while_held = copies_while_held
        self._opening_s = _OPENING_S
        self._rest_s, self._rest_at_s = 0.0, 0.0

    @property
    def expected_s(self) -> float:
        """How long events would be held if the query moved now."""
        believed = self._copies_while_held and self._clock.now() - self._rest_at_s <= FORGET_S
        return self._opening_s + (self._rest_s if believed else 0.0)

    def copied(self, begun_s: float) -> float:
        """Note that what had changed since the last copy is copied; return how long that took."""
        self._rest_at_s = self._clock.now()
        self._rest_s = self._rest_at_s - begun_s
        return self._rest_s

    def moved(self, pause_s: float) -> None:
        """Note how long events were held by a move, which includes the last copying."""
        self._opening_s = max(0.0, pause_s - self._rest_s) if self._copies_while_held else pause_s
