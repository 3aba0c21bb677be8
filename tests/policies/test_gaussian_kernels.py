from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared

from policies.gaussian.kernels import Ard, Kernel, Periodic, Sum, Trend

scales = st.floats(0.05, 20.0)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Draw a kernel over two features."""
    ard = Ard(draw(scales), (draw(scales), draw(scales)))
    periodic = Periodic(draw(st.integers(0, 1)), draw(scales), draw(scales), draw(scales), draw(scales))
    trend = Trend(draw(st.integers(0, 1)), draw(scales), draw(scales))
    every: list[Kernel] = [ard, periodic, trend, Sum((ard, periodic, trend))]
    return draw(st.sampled_from(every))


def points(seed: int, n: int = 12) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-3, 3, size=(n, 2))


def test_ard_is_equation_8() -> None:
    x1, x2 = np.array([[1.0, 2.0]]), np.array([[1.5, -1.0]])
    expected = 4.0 * np.exp(-0.5 * ((0.5 / 0.7) ** 2 + (3.0 / 2.5) ** 2))
    assert Ard(2.0, (0.7, 2.5)).covariance(x1, x2)[0, 0] == pytest.approx(expected, rel=1e-14)


def test_kernels_equal_those_of_scikit_learn() -> None:
    x = points(1)
    assert Ard(1.7, (0.4, 3.0)).covariance(x, x) == pytest.approx((ConstantKernel(1.7**2) * RBF([0.4, 3.0]))(x))
    theirs = ConstantKernel(0.8**2) * ExpSineSquared(length_scale=0.6, periodicity=1.3) * RBF(5.0)
    ours = Periodic(column=1, period=1.3, sigma=0.8, smoothness=0.6, memory=5.0)
    assert ours.covariance(x, x) == pytest.approx(theirs(x[:, 1:]))
    assert Trend(1, 0.8, 5.0).covariance(x, x) == pytest.approx((ConstantKernel(0.8**2) * RBF(5.0))(x[:, 1:]))


def test_a_great_length_scale_makes_its_feature_irrelevant() -> None:
    x = points(2)
    moved = x.copy()
    moved[:, 1] += 2.0
    kernel = Ard(1.0, (0.5, 1e9))
    assert kernel.covariance(x, moved) == pytest.approx(kernel.covariance(x, x))


@given(kernels(), st.integers(0, 1000))
def test_kernels_are_symmetric_positive_and_of_one_variance(kernel: Kernel, seed: int) -> None:
    x = points(seed)
    covariance = kernel.covariance(x, x)
    assert np.array_equal(covariance, covariance.T)
    assert np.diag(covariance) == pytest.approx(kernel.variance)
    assert np.linalg.eigvalsh(covariance).min() >= -1e-10 * kernel.variance * len(x)


@given(kernels())
def test_theta_goes_out_and_in(kernel: Kernel) -> None:
    assert kernel.with_theta(kernel.theta).theta == pytest.approx(kernel.theta)
    assert kernel.with_theta(kernel.theta + 0.3).theta == pytest.approx(kernel.theta + 0.3)


@given(kernels(), st.integers(0, 1000))
def test_the_weighted_gradient_is_that_of_finite_differences(kernel: Kernel, seed: int) -> None:
    x = points(seed) + 50.0  # far from zero, where a careless expansion loses its digits
    weights = np.random.default_rng(seed).normal(size=(len(x), len(x)))
    weights += weights.T
    step = 1e-5
    numeric = []
    for shift in step * np.eye(len(kernel.theta)):
        up, down = (kernel.with_theta(kernel.theta + s).covariance(x, x) for s in (shift, -shift))
        numeric.append(np.sum(weights * (up - down)) / (2 * step))
    scale = kernel.variance * len(x) ** 2
    assert kernel.weighted_gradient(x, weights) == pytest.approx(numeric, abs=1e-6 * scale)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Ard(0.0, (1.0,)),
        lambda: Ard(1.0, (1.0, -1.0)),
        lambda: Ard(float("nan"), (1.0,)),
        lambda: Periodic(0, 0.0, 1.0, 1.0, 1.0),
        lambda: Trend(0, 1.0, 0.0),
        lambda: Sum(()),
    ],
)
def test_nonsense_is_refused(make: object) -> None:
    with pytest.raises(ValueError, match=r"positive|at least one part"):
        make()  # type: ignore[operator]
