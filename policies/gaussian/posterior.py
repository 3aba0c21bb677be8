"""The posterior of a Gaussian process: mean and variance anywhere, given a sliding window of observations.

A point is appended, or replaces the oldest, in O(n^2): nothing is factored again.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from policies.arrays import Array, finite
from policies.gaussian.kernels import Kernel

_BLOCK_ROWS = 64

_POINTS_AT_ONCE = 16
"""The number of points in one solve: scipy holds the interpreter's lock meanwhile, and other threads wait."""


class Posterior:
    """A Gaussian process with prior mean zero, given the observations of a window.

    Args:
        kernel: covariance function with its hyperparameters.
        noise: sigma of equation 5.
        x: shape (n, n_features), oldest first; n may be 0.
        y: shape (n,).

    Raises:
        ValueError: shapes do not match, a value is not finite, or the noise is not positive.
        numpy.linalg.LinAlgError: K + sigma^2 I is not positive definite in floating point.
    """

    def __init__(self, kernel: Kernel, noise: float, x: Array, y: Array) -> None:
        self.kernel = kernel
        self.noise = noise
        self._x, self._y = finite("x", x, 2), finite("y", y, 1)
        if len(self._x) != len(self._y):
            raise ValueError(f"{len(self._x)} points have {len(self._y)} values")
        if not noise > 0:
            raise ValueError(f"the noise must be positive, not {noise!r}: it is what keeps K + sigma^2 I invertible")
        self._factor = _factored(kernel, noise, self._x)
        self._spare: Array | None = None
        self._set_alpha()

    def __getstate__(self) -> dict[str, object]:
        """Return what is pickled: not the spare matrix."""
        return self.__dict__ | {"_spare": None}

    def __len__(self) -> int:
        """Return how many observations the window holds."""
        return len(self._y)

    @property
    def x(self) -> Array:
        """Return the window's points, oldest first."""
        return self._x

    @property
    def y(self) -> Array:
        """Return the window's values, oldest first."""
        return self._y

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Return mean and variance of f at each point (equations 4 to 7; GPML, algorithm 2.1).

        The variance is that of f; an observation there has sigma^2 more.

        Args:
            x: shape (m, n_features).
        """
        x = finite("x", x, 2)
        cross = self.kernel.covariance(x, self._x)  # equation 7, a row each point
        variance = np.empty(len(x))
        for first in range(0, len(x), _POINTS_AT_ONCE):
            part = slice(first, first + _POINTS_AT_ONCE)
            whitened = solve_triangular(self._factor, cross[part].T, lower=True, check_finite=False)
            variance[part] = self.kernel.variance - np.einsum("nm,nm->m", whitened, whitened)
        return cross @ self._alpha, np.maximum(variance, 0.0)

    def errors_ahead(self, lead: int, last: int) -> tuple[Array, Array]:
        """Return the errors of forecasts of the last observations, and their expected standard deviations.

        Each is forecast from all of the window except the ``lead - 1`` observations before it. That needs no solving:
        with K + sigma^2 I = L L^T and w = L^-1 y, the part of y_i that the first j observations do not explain is the
        sum of L_ik w_k over k >= j, and its variance is the sum of L_ik^2 (the factor's leading block belongs to them).

        Args:
            lead: how many observations ahead, 1 or more.
            last: for how many observations; those with fewer than ``lead`` before them are left out.

        Returns:
            y - mean and its standard deviation, with noise, oldest first, both of the same shape.
        """
        rows = np.arange(max(lead, len(self) - last), len(self))[:, None]
        columns = rows - np.arange(lead)[None, :]
        band = self._factor[rows, columns]
        errors: Array = np.einsum("ij,ij->i", band, self._half[columns])
        return errors, np.sqrt(np.einsum("ij,ij->i", band, band))

    def append(self, x: Array, y: float) -> None:
        """Add an observation: the factor gets one row (GPML, A.12).

        Args:
            x: shape (n_features,).
            y: its value.
        """
        point, value = finite("x", x, 1)[None, :], finite("y", y, 0)
        cross = self.kernel.covariance(self._x, point)[:, 0]
        row = solve_triangular(self._factor, cross, lower=True, check_finite=False)
        n = len(self)
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n] = self._factor
        factor[n, :n], factor[n, n] = row, self._pivot(row)
        self._factor, self._spare = factor, None
        self._x, self._y = np.vstack([self._x, point]), np.append(self._y, value)
        self._set_alpha()

    def replace_oldest(self, x: Array, y: float) -> None:
        """Drop the oldest observation and add a new one: the window slides.

        The rest of the factor absorbs the dropped column as a rank-one update. Two matrices take turns, since new
        memory costs more time than the sums.

        Args:
            x: shape (n_features,).
            y: its value.

        Raises:
            ValueError: the window is empty.
        """
        if not len(self):
            raise ValueError("there is no observation to forget")
        point, value = finite("x", x, 1)[None, :], finite("y", y, 0)
        cross = np.append(self.kernel.covariance(self._x[1:], point)[:, 0], 0.0)
        spare = np.zeros_like(self._factor) if self._spare is None else self._spare
        _slide(self._factor, spare)
        row = solve_triangular(spare, cross, lower=True, check_finite=False)[:-1]
        spare[-1, :-1], spare[-1, -1] = row, self._pivot(row)
        self._factor, self._spare = spare, self._factor
        self._x, self._y = np.vstack([self._x[1:], point]), np.append(self._y[1:], value)
        self._set_alpha()

    def _pivot(self, row: Array) -> float:
        """Return the new row's entry on the diagonal; at least the noise of a point, in spite of rounding."""
        return math.sqrt(max(self.kernel.variance + self.noise**2 - float(row @ row), self.noise**2))

    def _set_alpha(self) -> None:
        """Compute equation 5."""
        self._half: Array = solve_triangular(self._factor, self._y, lower=True, check_finite=False)
        self._alpha: Array = solve_triangular(self._factor, self._half, lower=True, trans="T", check_finite=False)


def _factored(kernel: Kernel, noise: float, x: Array) -> Array:
    noisy = kernel.covariance(x, x)
    noisy[np.diag_indices(len(x))] += noise**2
    try:
        factor: Array = cholesky(noisy, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        error.args = (f"K + sigma^2 I of {kernel} at noise {noise:g} is not positive definite: raise the noise",)
        raise
    return np.ascontiguousarray(factor)  # makes sums along rows fast


def _slide(factor: Array, out: Array) -> None:
    """Write the factor without its first observation to the upper left of ``out``; the last row follows later.

    With L = [[l, 0], [v, L']] the rest is the Cholesky factor of L' L'^T + v v^T (Gill, Golub, Murray, Saunders 1974,
    method C1). With p = L'^-1 v it is L' M, where M M^T = I + p p^T has the closed form M_jj = sqrt(s_j / s_{j-1}),
    M_ij = p_i p_j / sqrt(s_j s_{j-1}) for i > j, and s_j = 1 + p_0^2 + ... + p_j^2. So no loop over columns is needed.
    Rows are processed in blocks, which stay in the CPU's cache and end at the diagonal.

    Args:
        factor: lower triangular, shape (n, n), rows in one piece.
        out: the same; above its diagonal it must be 0.
    """
    n = len(factor) - 1
    column = factor[:, 0].copy()
    column[0] = 0.0
    p = solve_triangular(factor, column, lower=True, check_finite=False)[1:]
    s = 1.0 + np.cumsum(p**2)
    before = np.concatenate([[1.0], s[:-1]])
    below, stays = p / np.sqrt(s * before), np.sqrt(s / before)
    for first in range(0, n, _BLOCK_ROWS):
        last = min(first + _BLOCK_ROWS, n)
        rows = factor[first + 1 : last + 1, 1 : last + 1]
        left_of = np.cumsum(rows * p[:last], axis=1)
        # Sums over the columns right of each; above the diagonal they are exactly 0.
        right_of = left_of[:, -1:] - left_of
        right_of *= below[:last]
        np.add(right_of, rows * stays[:last], out=out[first:last, :last])
    out[n, :n], out[n, n] = 0.0, 1.0
