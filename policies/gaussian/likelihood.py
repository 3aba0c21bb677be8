"""Hyperparameters by maximum likelihood: the negative log marginal likelihood, its gradient, and its minimum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_solve, cholesky
from scipy.linalg.lapack import dpotri
from scipy.optimize import minimize

from policies.arrays import Array, finite
from policies.gaussian.kernels import Kernel

_LOG_2PI = float(np.log(2 * np.pi))


@dataclass(frozen=True, slots=True)
class FittedKernel:
    """The best hyperparameters that were found.

    Attributes:
        kernel: with its hyperparameters.
        noise: sigma of equation 5, standard deviation of what the kernel does not explain.
        nll: negative log marginal likelihood there.
        converged: whether the optimiser converged from the best start; otherwise it ran out of steps.
        evaluations: how often the likelihood was computed, over all starts.
    """

    kernel: Kernel
    noise: float
    nll: float
    converged: bool
    evaluations: int


def negative_log_likelihood(kernel: Kernel, noise: float, x: Array, y: Array) -> tuple[float, Array]:
    """Return -log p(y | x) and its gradient (GPML, equations 2.30 and 5.9).

    Args:
        kernel: covariance function.
        noise: sigma, standard deviation of the noise.
        x: shape (n, n_features).
        y: shape (n,), of mean zero.

    Returns:
        The value, and its gradient by the kernel's theta and then log sigma.

    Raises:
        numpy.linalg.LinAlgError: K + sigma^2 I is not positive definite in floating point.
    """
    n = len(y)
    noisy = kernel.covariance(x, x)
    noisy[np.diag_indices(n)] += noise**2
    factor = cholesky(noisy, lower=True, overwrite_a=True, check_finite=False)
    alpha: Array = cho_solve((factor, True), y, check_finite=False)
    nll = 0.5 * float(y @ alpha) + float(np.log(np.diag(factor)).sum()) + 0.5 * n * _LOG_2PI
    inverse, _ = dpotri(factor, lower=True)
    lower = np.tril(inverse, -1)
    weights = lower + lower.T
    weights[np.diag_indices(n)] = np.diag(inverse)
    weights -= np.outer(alpha, alpha)
    weights *= 0.5
    by_noise = 2.0 * noise**2 * float(np.trace(weights))
    return nll, np.append(kernel.weighted_gradient(x, weights), by_noise)


def fit(
    start: Kernel,
    noise: float,
    x: Array,
    y: Array,
    *,
    bounds: Sequence[tuple[float, float]],
    steps_most: int = 200,
) -> FittedKernel:
    """Minimise the negative log marginal likelihood by L-BFGS-B, from the given start (decision 0155).

    It takes O(n^3) a step: run it where nobody waits.

    Args:
        start: kernel to start from.
        noise: sigma to start from.
        x: shape (n, n_features).
        y: shape (n,), of mean zero.
        bounds: least and greatest value of each hyperparameter and, last, of the noise: not their logarithms.
        steps_most: bound on the optimiser's steps.

    Raises:
        ValueError: shapes or bounds do not match, or a value is not finite.
    """
    x, y = finite("x", x, 2), finite("y", y, 1)
    first = np.append(start.theta, np.log(noise))
    low, high = _log_bounds(bounds, len(first))

    def objective(theta: Array) -> tuple[float, Array]:
        try:
            return negative_log_likelihood(start.with_theta(theta[:-1]), float(np.exp(theta[-1])), x, y)
        except np.linalg.LinAlgError:
            return np.inf, np.zeros_like(theta)  # the line search turns back from here

    best = minimize(
        objective,
        np.clip(first, low, high),
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(low, high, strict=True)),
        options={"maxiter": steps_most},
    )
    if not np.isfinite(best.fun):
        raise ValueError("K + sigma^2 I was not positive definite at the start: raise the least noise")
    return FittedKernel(
        kernel=start.with_theta(best.x[:-1]),
        noise=float(np.exp(best.x[-1])),
        nll=float(best.fun),
        converged=bool(best.success),
        evaluations=int(best.nfev),
    )


def _log_bounds(bounds: Sequence[tuple[float, float]], wanted: int) -> tuple[Array, Array]:
    array = finite("bounds", bounds, 2)
    if array.shape != (wanted, 2):
        raise ValueError(f"{wanted} pairs of bounds are needed, one a hyperparameter, not {len(array)}")
    if not (array[:, 0] > 0).all() or not (array[:, 0] <= array[:, 1]).all():
        raise ValueError(f"bounds must be positive and in order: {array.tolist()}")
    return np.log(array[:, 0]), np.log(array[:, 1])
