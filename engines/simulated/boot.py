"""The time from the order of a VM until it serves: spread around an expected time, or measured."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Protocol


class BootTimes(Protocol):
    """Draws boot times."""

    def draw(self, random_state: random.Random, boot_s: float) -> float:
        """Return the next boot time in seconds; ``boot_s`` is the expected one."""
        ...


@dataclass(frozen=True, slots=True)
class LogNormal:
    """The expected time is the median; ``spread`` is the standard deviation of the logarithm."""

    spread: float = 0.3

    def __post_init__(self) -> None:
        if not 0 <= self.spread < math.inf:
            raise ValueError(f"a spread must be finite and not negative, not {self.spread!r}")

    def draw(self, random_state: random.Random, boot_s: float) -> float:
        """See ``BootTimes``."""
        return boot_s * random_state.lognormvariate(0.0, self.spread)


@dataclass(frozen=True, slots=True)
class Evenly:
    """Uniform between ``least`` and ``most`` times the expected time."""

    least: float
    most: float

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most < math.inf:
            raise ValueError(f"boot times cannot lie between {self.least!r} and {self.most!r} times the expected time")

    def draw(self, random_state: random.Random, boot_s: float) -> float:
        """See ``BootTimes``."""
        return boot_s * random_state.uniform(self.least, self.most)


@dataclass(frozen=True, slots=True)
class MeasuredTimes:
    """One of ``times_s``, all equally likely, whatever the expected time."""

    times_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.times_s or not all(0 <= time_s < math.inf for time_s in self.times_s):
            raise ValueError(f"boot times must be finite and not negative, and there must be one: {self.times_s}")

    def draw(self, random_state: random.Random, boot_s: float) -> float:  # noqa: ARG002
        """See ``BootTimes``."""
        return random_state.choice(self.times_s)
