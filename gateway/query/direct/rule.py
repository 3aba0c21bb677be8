"""When Spark carries parts of a query by itself, and when they pass through the gateway. Pure: time is an argument."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectTerms:
    """How the rule decides.

    Attributes:
        late_above_s: a latency above this is too much.
        late_for_s: for so long, before the gateway takes over some parts.
        calm_s: nothing may have gone to VMs, and nothing waited, for so long before Spark carries a part.
        pause_s: how long the gateway keeps a part that Spark failed to carry, or carried too late; doubled each time.
        most_pause_s: at most.
        good_s: a turn of Spark that lasts for so long makes up for all that ended early.
    """

    late_above_s: float
    late_for_s: float
    calm_s: float = 5.0
    pause_s: float = 15.0
    most_pause_s: float = 1800.0
    good_s: float = 300.0


class DirectRule:
    """Decides for one part when Spark carries it.

    Args:
        terms: how.
    """

    def __init__(self, terms: DirectTerms) -> None:
        self._terms = terms
        self._calm_since_s: float | None = None
        self._not_before_s = self._began_s = float("-inf")
        self._failures = 0

    def may_begin(self, now_s: float, *, calm: bool) -> bool:
        """Return whether Spark is to carry the part from now on.

        Args:
            now_s: now.
            calm: no event goes to VMs, and none waits for long.
        """
        if not calm:
            self._calm_since_s = None
            return False
        if self._calm_since_s is None:
            self._calm_since_s = now_s
        return now_s >= max(self._calm_since_s + self._terms.calm_s, self._not_before_s)

    def began(self, now_s: float) -> None:
        """Note that Spark's turn begins."""
        self._began_s = now_s

    def ended(self, now_s: float, *, in_vain: bool) -> None:
        """Note that the gateway has taken over; ``in_vain``: Spark could not go on, or was too late."""
        self._calm_since_s = None
        if now_s - self._began_s >= self._terms.good_s:
            self._failures = 0
        if not in_vain:
            return
        pause_s = min(self._terms.pause_s * 2.0**self._failures, self._terms.most_pause_s)
        self._failures += 1
        self._not_before_s = now_s + pause_s


class Lateness:
    """Decides how many parts the gateway takes over because results come too late.

    Half of the parts relieve home noticeably, and leave the rest undisturbed; if that is not enough, half of what is
    left follows, and so on.

    Args:
        terms: how.
    """

    def __init__(self, terms: DirectTerms) -> None:
        self._terms = terms
        self._since_s: float | None = None

    def to_take(self, now_s: float, latency_s: float, carried: int) -> int:
        """Return how many parts the gateway is to take over.

        Args:
            now_s: now.
            latency_s: of the newest result.
            carried: how many parts Spark carries.
        """
        if latency_s <= self._terms.late_above_s:
            self._since_s = None
            return 0
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._terms.late_for_s:
            return 0
        self._since_s = None  # those that are left get time to recover
        return math.ceil(carried / 2)
