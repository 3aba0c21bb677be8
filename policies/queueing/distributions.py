"""The five distributions that a workload is compared with (section V-A), each with its parameters as fields.

Parameters come from the moments where those give them well. For Pareto they come from the maximum likelihood and,
unlike in the paper, so do those of uniform times: bounds from moments are off by the order of 1 / sqrt(n), enough for
the tests to reject them; bounds from the extremes of the sample are off by 1 / n only. All times are in seconds and not
negative; samples have the shape (n,).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np

from policies.arrays import Array, finite


class Distribution(Protocol):
    """A distribution of times."""

    name: ClassVar[str]

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Return the distribution of this kind that fits a sample best.

        Raises:
            ValueError: no distribution of this kind does.
        """
        ...

    @property
    def mean_s(self) -> float:
        """Return the mean; infinite if there is none."""
        ...

    def cdf(self, at_s: Array) -> Array:
        """Return the probability of at most ``at_s``."""
        ...

    def quantile(self, probability: Array) -> Array:
        """Return the time that is not exceeded with this probability, 0 <= probability < 1."""
        ...


@dataclass(frozen=True, slots=True)
class Exponential:
    """Memoryless times: a Poisson process.

    Raises:
        ValueError: the mean is not positive.
    """

    name: ClassVar[str] = "exponential"
    mean_s: float

    def __post_init__(self) -> None:
        _require(self.mean_s > 0, self)

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Match the mean."""
        return cls(float(sample.mean()))

    def cdf(self, at_s: Array) -> Array:
        """Return 1 - exp(-t / mean)."""
        return -np.expm1(-np.maximum(at_s, 0.0) / self.mean_s)

    def quantile(self, probability: Array) -> Array:
        """Return the inverse of ``cdf``."""
        return -self.mean_s * np.log1p(-probability)


@dataclass(frozen=True, slots=True)
class Deterministic:
    """Always the same time.

    Raises:
        ValueError: the time is not positive.
    """

    name: ClassVar[str] = "deterministic"
    mean_s: float

    def __post_init__(self) -> None:
        _require(self.mean_s > 0, self)

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Match the mean."""
        return cls(float(sample.mean()))

    def cdf(self, at_s: Array) -> Array:
        """Return 1 from the time on."""
        return np.where(at_s >= self.mean_s, 1.0, 0.0)

    def quantile(self, probability: Array) -> Array:
        """Return the time."""
        return np.full(np.shape(probability), self.mean_s)


@dataclass(frozen=True, slots=True)
class Normal:
    """A time with symmetric noise.

    Raises:
        ValueError: mean or standard deviation is not positive.
    """

    name: ClassVar[str] = "normal"
    mean_s: float
    std_s: float

    def __post_init__(self) -> None:
        _require(self.mean_s > 0 and self.std_s > 0, self)

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Match mean and variance."""
        return cls(float(sample.mean()), float(sample.std(ddof=1)))

    def cdf(self, at_s: Array) -> Array:
        """Return the normal integral."""
        from scipy.special import ndtr

        probability: Array = ndtr((at_s - self.mean_s) / self.std_s)
        return probability

    def quantile(self, probability: Array) -> Array:
        """Return the inverse of ``cdf``; times before 0 count as 0."""
        from scipy.special import ndtri

        quantile: Array = np.maximum(self.mean_s + self.std_s * ndtri(probability), 0.0)
        return quantile


@dataclass(frozen=True, slots=True)
class Uniform:
    """Any time between two, equally likely.

    Raises:
        ValueError: the least time is not less than the greatest, or both are negative.
    """

    name: ClassVar[str] = "uniform"
    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        _require(self.low_s < self.high_s and self.high_s > 0, self)

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Take the extremes of the sample, moved out by the mean gap between its times, without bias."""
        low, high = float(sample.min()), float(sample.max())
        gap = (high - low) / (len(sample) - 1)
        return cls(max(low - gap, 0.0), high + gap)

    @property
    def mean_s(self) -> float:
        """Return the middle."""
        return (self.low_s + self.high_s) / 2

    def cdf(self, at_s: Array) -> Array:
        """Return a ramp."""
        return np.clip((at_s - self.low_s) / (self.high_s - self.low_s), 0.0, 1.0)

    def quantile(self, probability: Array) -> Array:
        """Return the inverse of ``cdf``."""
        return self.low_s + probability * (self.high_s - self.low_s)


@dataclass(frozen=True, slots=True)
class Pareto:
    """Times with a heavy tail: P(X > t) = (least / t)^shape.

    Raises:
        ValueError: a parameter is not positive.
    """

    name: ClassVar[str] = "Pareto"
    least_s: float
    shape: float

    def __post_init__(self) -> None:
        _require(self.least_s > 0 and self.shape > 0, self)

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Maximise the likelihood: the least time seen, and the inverse of the mean logarithm of the others over it."""
        least = float(sample.min())
        _require(least > 0, "a sample with a time of 0 s")
        spread = float(np.log(sample / least).mean())
        _require(spread > 0, "a sample that does not vary")
        return cls(least, 1.0 / spread)

    @property
    def mean_s(self) -> float:
        """Return the mean; infinite for a shape up to 1."""
        return self.least_s * self.shape / (self.shape - 1) if self.shape > 1 else math.inf

    def cdf(self, at_s: Array) -> Array:
        """Return 1 - (least / t)^shape."""
        above = np.maximum(at_s, self.least_s)
        probability: Array = 1.0 - (self.least_s / above) ** self.shape
        return probability

    def quantile(self, probability: Array) -> Array:
        """Return the inverse of ``cdf``."""
        quantile: Array = self.least_s * (1.0 - probability) ** (-1.0 / self.shape)
        return quantile


@dataclass(frozen=True, slots=True)
class Empirical:
    """Times that follow none of the others: those of a sample, each equally likely.

    Raises:
        ValueError: it is empty, or all its times are 0.
    """

    name: ClassVar[str] = "irregular"
    sample: tuple[float, ...]

    def __post_init__(self) -> None:
        _require(sum(self.sample) > 0, self)

    @classmethod
    def fitted(cls, sample: Array) -> Self:
        """Take the sample, in ascending order."""
        return cls(tuple(np.sort(sample).tolist()))

    @property
    def mean_s(self) -> float:
        """Return the mean of the sample."""
        return float(np.mean(self.sample))

    def cdf(self, at_s: Array) -> Array:
        """Return the part of the sample up to the time."""
        return np.asarray(np.searchsorted(self.sample, at_s, side="right") / len(self.sample))

    def quantile(self, probability: Array) -> Array:
        """Return a time of the sample."""
        at = (np.asarray(probability) * len(self.sample)).astype(np.intp)
        quantile: Array = np.array(self.sample)[np.minimum(at, len(self.sample) - 1)]
        return quantile


KINDS: tuple[type[Exponential | Deterministic | Normal | Uniform | Pareto], ...] = (
    Exponential,
    Deterministic,
    Normal,
    Uniform,
    Pareto,
)
"""All kinds, in the order of the paper."""


def times(sample: Sequence[float] | Array, least: int) -> Array:
    """Return a sample of times as an array.

    Raises:
        ValueError: fewer than ``least`` of them, a negative one, or one that is not finite.
    """
    array = finite("times", sample, 1)
    if len(array) < least:
        raise ValueError(f"{len(array)} times are too few to tell a distribution: {least} are needed")
    if array.min() < 0:
        raise ValueError(f"times must not be negative: the least is {array.min():g} s")
    return array


def _require(fits: bool, what: object) -> None:
    if not fits:
        raise ValueError(f"there is no such distribution: {what}")
