"""A clock for tests of clouds, in which the code waits long and often."""

from __future__ import annotations

from infra.clock import SystemClock


class LeapingClock(SystemClock):
    """Real time, but a sleep of a second or more is only recorded and skipped."""

    def __init__(self) -> None:
        self.leaps_s: list[float] = []

    def now(self) -> float:
        return super().now() + sum(self.leaps_s)

    async def sleep_until(self, at_s: float) -> None:
        ahead_s = at_s - self.now()
        if ahead_s >= 1.0:
            self.leaps_s.append(ahead_s)
        await super().sleep_until(super().now() if ahead_s >= 1.0 else at_s - sum(self.leaps_s))
