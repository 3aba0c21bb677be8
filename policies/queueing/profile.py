"""The processing times of an operator's instances at different loads, measured before run time (section V-B)."""

from __future__ import annotations

import bisect
from dataclasses import dataclass

from policies.queueing.distributions import Distribution


@dataclass(frozen=True, slots=True)
class ProfilePoint:
    """Processing times measured at one load.

    Attributes:
        rate: events per second.
        service: the distribution of times to process one.
    """

    rate: float
    service: Distribution


class OperatorProfile:
    """Processing times by load.

    Args:
        points: in any order, at least one, each rate once.

    Raises:
        ValueError: no point, a negative rate, or a rate twice.
    """

    def __init__(self, points: tuple[ProfilePoint, ...]) -> None:
        self._points = sorted(points, key=lambda point: point.rate)
        self._rates = [point.rate for point in self._points]
        if not points or self._rates[0] < 0 or len(set(self._rates)) < len(points):
            raise ValueError(f"a profile needs different rates that are not negative, not {self._rates}")

    def service(self, rate: float) -> tuple[Distribution, bool]:
        """Return the times at the next higher load that was measured, since times grow with the load.

        Returns:
            The distribution, and whether such a high load was measured; if not, it is that of the highest one.
        """
        at = bisect.bisect_left(self._rates, rate)
        covered = at < len(self._points)
        return self._points[min(at, len(self._points) - 1)].service, covered
