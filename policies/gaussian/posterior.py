"""What is known after some observations: mean and variance anywhere, over a window that slides.

A point is appended, and the oldest dropped, in O(n^2) each: nothing is factored anew.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import cholesky, solve_triangular

from policies.arrays import Array, finite
from policies.gaussian.kernels import Kernel


class Posterior:
    """A Gaussian process with mean zero before it saw anything, given the observations of a window.

    Args:
        kernel: covariance function with its hyperparameters.
        noise: sigma of equation 5.
        x: shape (n, n_features), oldest first; n may be 0.
        y: shape (n,).

    Raises:
        ValueError: shapes that do not fit, values that are not finite, noise that is not positive.
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
        self._set_alpha()

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

        The variance is that of f; what will be observed there has sigma^2 more.

        Args:
            x: shape (m, n_features).
        """
        x = finite("x", x, 2)
        cross = self.kernel.covariance(x, self._x)  # equation 7, a row each point
        whitened: Array = solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
        variance = self.kernel.variance - np.einsum("nm,nm->m", whitened, whitened)
        return cross @ self._alpha, np.maximum(variance, 0.0)

    def append(self, x: Array, y: float) -> None:
        """Add an observation: the factor gets one row (GPML, A.12).

        Args:
            x: shape (n_features,).
            y: its value.
        """
        point, value = finite("x", x, 1)[None, :], finite("y", y, 0)
        cross = self.kernel.covariance(self._x, point)[:, 0]
        row = solve_triangular(self._factor, cross, lower=True, check_finite=False)
        # What the others leave open of the new point is at least its noise, whatever rounding says.
        pivot = np.sqrt(max(self.kernel.variance + self.noise**2 - row @ row, self.noise**2))
        n = len(self)
        factor = np.zeros((n + 1, n + 1))
        factor[:n, :n] = self._factor
        factor[n, :n], factor[n, n] = row, pivot
        self._factor = factor
        self._x, self._y = np.vstack([self._x, point]), np.append(self._y, value)
        self._set_alpha()

    def drop_oldest(self) -> None:
        """Forget the oldest observation: what stays of the factor takes the dropped column in as a rank-one update.

        Raises:
            ValueError: the window is empty.
        """
        if not len(self):
            raise ValueError("there is no observation to forget")
        self._factor = _rank_one_update(self._factor[1:, 1:], self._factor[1:, 0])
        self._x, self._y = self._x[1:], self._y[1:]
        self._set_alpha()

    def _set_alpha(self) -> None:
        """Compute equation 5."""
        half = solve_triangular(self._factor, self._y, lower=True, check_finite=False)
        self._alpha: Array = solve_triangular(self._factor, half, lower=True, trans="T", check_finite=False)


def _factored(kernel: Kernel, noise: float, x: Array) -> Array:
    noisy = kernel.covariance(x, x)
    noisy[np.diag_indices(len(x))] += noise**2
    try:
        factor: Array = cholesky(noisy, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError as error:
        error.args = (f"K + sigma^2 I of {kernel} at noise {noise:g} is not positive definite: raise the noise",)
        raise
    return np.ascontiguousarray(factor)  # sums along rows are fast then


def _rank_one_update(factor: Array, vector: Array) -> Array:
    """Return the Cholesky factor of L L^T + v v^T (Gill, Golub, Murray, Saunders 1974, method C1), shape (n, n).

    With p = L^-1 v it is L M, where M M^T = I + p p^T has the closed form M_jj = sqrt(s_j / s_{j-1}),
    M_ij = p_i p_j / sqrt(s_j s_{j-1}) for i > j, and s_j = 1 + p_0^2 + ... + p_j^2. So no loop over columns is needed.
    """
    n = len(vector)
    if n == 0:
        return np.zeros((0, 0))
    p = solve_triangular(factor, vector, lower=True, check_finite=False)
    s = 1.0 + np.cumsum(p**2)
    before = np.concatenate([[1.0], s[:-1]])
    updated: Array = factor * p
    left_of = np.cumsum(updated, axis=1)
    # Sums over the columns right of each; above the diagonal they are exactly 0.
    np.subtract(left_of[:, -1:], left_of, out=updated)
    updated *= p / np.sqrt(s * before)
    updated += np.multiply(factor, np.sqrt(s / before), out=left_of)
    return updated
