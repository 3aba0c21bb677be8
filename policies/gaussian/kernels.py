"""Covariance functions: how much two points say about each other, and how the hyperparameters change that.

A kernel is an immutable value. The optimiser sees its hyperparameters as the logarithms of its fields (all positive),
in the order of the fields. ``x`` always has the shape (n_samples, n_features).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from scipy.spatial.distance import cdist

from policies.arrays import Array


class Kernel(Protocol):
    """A covariance function k(x, x') whose variance k(x, x) is the same everywhere."""

    @property
    def theta(self) -> Array:
        """Return the logarithms of the hyperparameters, shape (n_theta,)."""
        ...

    @property
    def variance(self) -> float:
        """Return k(x, x)."""
        ...

    def with_theta(self, theta: Array) -> Self:
        """Return the same kernel with other hyperparameters."""
        ...

    def covariance(self, x1: Array, x2: Array) -> Array:
        """Return k of all pairs, shape (n1, n2)."""
        ...

    def weighted_gradient(self, x: Array, weights: Array) -> Array:
        """Return the sum over i, j of weights[i, j] dk(x_i, x_j)/dtheta, shape (n_theta,).

        A likelihood's gradient needs only this, and so no matrix for each hyperparameter.

        Args:
            x: points.
            weights: shape (n, n), symmetric.
        """
        ...


@dataclass(frozen=True, slots=True)
class Ard:
    """Automatic relevance determination: equation 8, k = sigma0^2 exp(-1/2 sum_d ((x_d - x'_d) / lambda_d)^2).

    Attributes:
        sigma0: standard deviation of the process.
        length_scales: lambda_d of each feature, in the feature's unit; a great one makes its feature irrelevant.

    Raises:
        ValueError: a hyperparameter is not positive.
    """

    sigma0: float
    length_scales: tuple[float, ...]

    def __post_init__(self) -> None:
        _require_positive(self, self.sigma0, *self.length_scales)

    @property
    def theta(self) -> Array:
        """Return log sigma0, log lambda_1 ... log lambda_D."""
        theta: Array = np.log(np.array([self.sigma0, *self.length_scales]))
        return theta

    @property
    def variance(self) -> float:
        """Return sigma0^2."""
        return self.sigma0**2

    def with_theta(self, theta: Array) -> Ard:
        """Return the kernel with other hyperparameters."""
        sigma0, *length_scales = np.exp(theta).tolist()
        return Ard(sigma0, tuple(length_scales))

    def covariance(self, x1: Array, x2: Array) -> Array:
        """Return equation 8 for all pairs."""
        scales = np.array(self.length_scales)
        covariance: Array = cdist(x1 / scales, x2 / scales, "sqeuclidean")
        covariance *= -0.5
        np.exp(covariance, out=covariance)
        covariance *= self.variance
        return covariance

    def weighted_gradient(self, x: Array, weights: Array) -> Array:
        """Return the gradient; dk/dlog lambda_d = k ((x_d - x'_d) / lambda_d)^2."""
        weighted = weights * self.covariance(x, x)
        return np.array([2.0 * weighted.sum(), *_weighted_square_distances(x / np.array(self.length_scales), weighted)])


@dataclass(frozen=True, slots=True)
class Periodic:
    """A shape that repeats each period and slowly changes (GPML, equation 5.16).

    k = sigma^2 exp(-2 sin^2(pi d / p) / l^2) exp(-1/2 (d / lambda)^2), with d the distance in one feature.

    Attributes:
        column: index of the feature, usually the timestamp.
        period: p, in the feature's unit; fixed.
        sigma: standard deviation of the process.
        smoothness: l, in parts of a radian: the smaller, the more detail within a period.
        memory: lambda, in the feature's unit: over how long the shape changes.

    Raises:
        ValueError: the period or a hyperparameter is not positive.
    """

    column: int
    period: float
    sigma: float
    smoothness: float
    memory: float

    def __post_init__(self) -> None:
        _require_positive(self, self.period, self.sigma, self.smoothness, self.memory)

    @property
    def theta(self) -> Array:
        """Return log sigma, log l, log lambda."""
        theta: Array = np.log(np.array([self.sigma, self.smoothness, self.memory]))
        return theta

    @property
    def variance(self) -> float:
        """Return sigma^2."""
        return self.sigma**2

    def with_theta(self, theta: Array) -> Periodic:
        """Return the kernel with other hyperparameters."""
        sigma, smoothness, memory = np.exp(theta).tolist()
        return Periodic(self.column, self.period, sigma, smoothness, memory)

    def covariance(self, x1: Array, x2: Array) -> Array:
        """Return k for all pairs."""
        return self._from_parts(*self._parts(x1, x2))

    def weighted_gradient(self, x: Array, weights: Array) -> Array:
        """Return the gradient; dk/dlog l = 4 k sin^2 / l^2 and dk/dlog lambda = k (d / lambda)^2."""
        waves, ages = self._parts(x, x)
        weighted = weights * self._from_parts(waves, ages)
        by_smoothness = 4.0 / self.smoothness**2 * np.vdot(weighted, waves)
        return np.array([2.0 * weighted.sum(), by_smoothness, np.vdot(weighted, ages)])

    def _parts(self, x1: Array, x2: Array) -> tuple[Array, Array]:
        """Return sin^2(pi d / p) and (d / lambda)^2 of all pairs."""
        apart = x1[:, self.column, None] - x2[None, :, self.column]
        return np.sin(np.pi / self.period * apart) ** 2, (apart / self.memory) ** 2

    def _from_parts(self, waves: Array, ages: Array) -> Array:
        return self.variance * np.exp(-2.0 / self.smoothness**2 * waves - 0.5 * ages)


@dataclass(frozen=True, slots=True)
class Trend:
    """A level that changes slowly: k = sigma^2 exp(-1/2 (d / lambda)^2), with d the distance in one feature.

    Attributes:
        column: index of the feature, usually the timestamp.
        sigma: standard deviation of the process.
        memory: lambda, in the feature's unit: over how long the level changes.

    Raises:
        ValueError: a hyperparameter is not positive.
    """

    column: int
    sigma: float
    memory: float

    def __post_init__(self) -> None:
        _require_positive(self, self.sigma, self.memory)

    @property
    def theta(self) -> Array:
        """Return log sigma, log lambda."""
        theta: Array = np.log(np.array([self.sigma, self.memory]))
        return theta

    @property
    def variance(self) -> float:
        """Return sigma^2."""
        return self.sigma**2

    def with_theta(self, theta: Array) -> Trend:
        """Return the kernel with other hyperparameters."""
        sigma, memory = np.exp(theta).tolist()
        return Trend(self.column, sigma, memory)

    def covariance(self, x1: Array, x2: Array) -> Array:
        """Return k for all pairs."""
        covariance: Array = self.variance * np.exp(-0.5 * self._ages(x1, x2))
        return covariance

    def weighted_gradient(self, x: Array, weights: Array) -> Array:
        """Return the gradient; dk/dlog lambda = k (d / lambda)^2."""
        ages = self._ages(x, x)
        weighted = weights * (self.variance * np.exp(-0.5 * ages))
        return np.array([2.0 * weighted.sum(), np.vdot(weighted, ages)])

    def _ages(self, x1: Array, x2: Array) -> Array:
        """Return (d / lambda)^2 of all pairs."""
        ages: Array = ((x1[:, self.column, None] - x2[None, :, self.column]) / self.memory) ** 2
        return ages


@dataclass(frozen=True, slots=True)
class Sum:
    """The sum of independent causes: k = k_1 + k_2 + ...

    Raises:
        ValueError: there are no parts.
    """

    parts: tuple[Kernel, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("a sum of kernels needs at least one part")

    @property
    def theta(self) -> Array:
        """Return those of the parts, one after the other."""
        return np.concatenate([part.theta for part in self.parts])

    @property
    def variance(self) -> float:
        """Return the sum of the parts' variances."""
        return math.fsum(part.variance for part in self.parts)

    def with_theta(self, theta: Array) -> Sum:
        """Return the kernel with other hyperparameters."""
        ends = np.cumsum([len(part.theta) for part in self.parts])[:-1]
        split = np.split(theta, ends)
        return Sum(tuple(part.with_theta(piece) for part, piece in zip(self.parts, split, strict=True)))

    def covariance(self, x1: Array, x2: Array) -> Array:
        """Return the sum of the parts' covariances."""
        covariance = self.parts[0].covariance(x1, x2)
        for part in self.parts[1:]:
            covariance += part.covariance(x1, x2)
        return covariance

    def weighted_gradient(self, x: Array, weights: Array) -> Array:
        """Return those of the parts, one after the other."""
        return np.concatenate([part.weighted_gradient(x, weights) for part in self.parts])


def _weighted_square_distances(x: Array, weights: Array) -> Array:
    """Return for each feature the sum over i, j of weights[i, j] (x_i - x_j)^2, in O(n^2) and without another matrix.

    Expanded, with symmetric weights w and row sums r, it is 2 (sum_i r_i x_i^2 - x^T w x).
    """
    centred = x - x.mean(axis=0)  # the expansion loses digits when x is far from zero
    rows = weights.sum(axis=1)
    sums: Array = 2.0 * (rows @ centred**2 - np.einsum("nd,nd->d", centred, weights @ centred))
    return sums


def _require_positive(kernel: object, *values: float) -> None:
    if not min(values) > 0:
        raise ValueError(f"all hyperparameters must be positive: {kernel}")
