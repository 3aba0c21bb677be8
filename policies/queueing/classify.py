"""Finds the distribution of a sample of times: fit each kind, test the fit, take the best (section V-A).

The exponential and the normal distribution have tables for a statistic on the empirical distribution function: here
Anderson and Darling's A^2, with parameters estimated from the sample (Stephens 1974). The others are judged by the
chi-square test for homogeneity of the sample with quantiles of the distribution.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import chdtrc

from policies.arrays import Array
from policies.queueing.distributions import (
    KINDS,
    Deterministic,
    Distribution,
    Exponential,
    Normal,
    Pareto,
    Uniform,
    times,
)

LEAST_SAMPLE = 50
"""Fewer times give no reliable result."""

_CONSTANT = 0.01
"""A coefficient of variation up to which times count as constant."""

_CHI_SQUARE_BINS_MOST = 30
_CHI_SQUARE_EXPECTED = 10

_ESTIMATED = {Uniform.name: 0, Pareto.name: 1}
"""Parameters that cost the chi-square test a degree of freedom; extremes of a sample are too exact for that."""

_EXPONENTIAL_TABLE = ((0.15, 0.10, 0.05, 0.025, 0.01), (0.922, 1.078, 1.341, 1.606, 1.957))
_NORMAL_TABLE = ((0.15, 0.10, 0.05, 0.025, 0.01), (0.576, 0.656, 0.787, 0.918, 1.092))
"""Probabilities of A^2 above the value below each, for parameters estimated from the sample (Stephens 1974)."""


@dataclass(frozen=True, slots=True)
class Match:
    """A distribution and how well it fits.

    Attributes:
        distribution: with its parameters.
        p_value: probability of a fit as bad as this if the sample did follow the distribution.
        distance: greatest difference of the two distribution functions.
    """

    distribution: Distribution
    p_value: float
    distance: float


@dataclass(frozen=True, slots=True)
class Classified:
    """The best match of a sample.

    Attributes:
        best: the distribution that fits best.
        accepted: whether it fits at the required level; if not, it is the nearest of the five.
        matches: all kinds that could be fitted, best first.
    """

    best: Distribution
    accepted: bool
    matches: tuple[Match, ...]


def classify(sample: Sequence[float] | Array, *, level: float = 0.01) -> Classified:
    """Match a sample of times with a distribution.

    Among kinds that are not rejected the greatest p value wins; if all are, the least distance.

    Args:
        sample: times in seconds, shape (n,).
        level: p value below which a kind is rejected.

    Raises:
        ValueError: too few times, a negative one, or only zeros.
    """
    array = times(sample, LEAST_SAMPLE)
    if array.max() == 0:
        raise ValueError("times that are all 0 s follow no distribution")
    if array.std() <= _CONSTANT * array.mean():
        constant = Match(Deterministic.fitted(array), 1.0, 0.0)
        return Classified(constant.distribution, accepted=True, matches=(constant,))
    matches = [match for kind in KINDS if kind is not Deterministic and (match := _match(kind, array)) is not None]
    accepted = any(match.p_value >= level for match in matches)
    if accepted:
        matches.sort(key=lambda match: (-match.p_value, match.distance))
    else:
        matches.sort(key=lambda match: match.distance)
    return Classified(matches[0].distribution, accepted, tuple(matches))


def anderson_darling(distribution: Distribution, sample: Array) -> float:
    """Return A^2 = -n - sum_i (2i - 1) / n (log F(x_i) + log(1 - F(x_{n+1-i}))), with x in order."""
    n = len(sample)
    below = np.clip(distribution.cdf(np.sort(sample)), 1e-300, 1 - 1e-16)
    weights = 2 * np.arange(1, n + 1) - 1
    return float(-n - (weights * (np.log(below) + np.log1p(-below[::-1]))).sum() / n)


def chi_square_p(distribution: Distribution, sample: Array, estimated: int) -> float:
    """Return the p value of the chi-square test over bins that are equally likely under the distribution.

    The bins' bounds are quantiles of the distribution, so each expects the same count.

    Args:
        distribution: the hypothesis.
        sample: times, shape (n,).
        estimated: how many parameters were estimated from the sample.
    """
    n = len(sample)
    bins = min(max(n // _CHI_SQUARE_EXPECTED, estimated + 2), _CHI_SQUARE_BINS_MOST)
    bounds = distribution.quantile(np.arange(1, bins) / bins)
    counts = np.bincount(np.searchsorted(bounds, sample), minlength=bins)
    statistic = float(((counts - n / bins) ** 2).sum() / (n / bins))
    return float(chdtrc(bins - 1 - estimated, statistic))


def _match(kind: type[Distribution], sample: Array) -> Match | None:
    try:
        distribution = kind.fitted(sample)
    except ValueError:
        return None  # this kind cannot have made such times
    n = len(sample)
    if isinstance(distribution, Exponential):
        p_value = _from_table(_EXPONENTIAL_TABLE, anderson_darling(distribution, sample) * (1 + 0.6 / n))
    elif isinstance(distribution, Normal):
        p_value = _from_table(_NORMAL_TABLE, anderson_darling(distribution, sample) * (1 + 0.75 / n + 2.25 / n**2))
    else:
        p_value = chi_square_p(distribution, sample, _ESTIMATED[distribution.name])
    return Match(distribution, p_value, _distance(distribution, sample))


def _from_table(table: tuple[tuple[float, ...], tuple[float, ...]], statistic: float) -> float:
    """Return the p value: logarithmic between the table's values and beyond its end, linear up to 1 before them."""
    probabilities, statistics = (np.array(column) for column in table)
    if statistic <= statistics[0]:
        return float(1.0 - (1.0 - probabilities[0]) * max(statistic, 0.0) / statistics[0])
    logs = np.log(probabilities)
    if statistic <= statistics[-1]:
        return float(np.exp(np.interp(statistic, statistics, logs)))
    slope = (logs[-1] - logs[-2]) / (statistics[-1] - statistics[-2])
    return float(np.exp(max(logs[-1] + slope * (statistic - statistics[-1]), -700.0)))


def _distance(distribution: Distribution, sample: Array) -> float:
    n = len(sample)
    below = distribution.cdf(np.sort(sample))
    ranks = np.arange(n + 1) / n
    return float(max((ranks[1:] - below).max(), (below - ranks[:-1]).max()))
