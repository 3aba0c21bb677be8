from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared, WhiteKernel

from policies.gaussian.kernels import Ard, Kernel, Periodic, Sum
from policies.gaussian.likelihood import fit, negative_log_likelihood
from policies.gaussian.posterior import Posterior

ARD = Ard(1.5, (0.8, 2.0))
BOTH = Sum((ARD, Periodic(0, 1.3, 0.7, 1.1, 6.0)))
NOISE = 0.2
BOUNDS = [(0.05, 20.0)] * 3 + [(1e-3, 3.0)]


def sample(seed: int, n: int = 40) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-4, 4, size=(n, 2)), axis=0)
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + rng.normal(0, NOISE, n)


def sklearn_model(kernel: object, x: np.ndarray, y: np.ndarray) -> GaussianProcessRegressor:
    return GaussianProcessRegressor(kernel + WhiteKernel(NOISE**2), optimizer=None, alpha=0.0).fit(x, y)


def test_predictions_equal_those_of_scikit_learn() -> None:
    x, y = sample(1, 120)
    at = np.random.default_rng(2).uniform(-6, 6, size=(50, 2))
    theirs = sklearn_model(ConstantKernel(1.5**2) * RBF([0.8, 2.0]), x, y)
    mean, variance = Posterior(ARD, NOISE, x, y).predict(at)
    their_mean, their_std = theirs.predict(at, return_std=True)
    assert mean == pytest.approx(their_mean, abs=1e-6)
    # Theirs is the variance of an observation, ours of f.
    assert variance + NOISE**2 == pytest.approx(their_std**2, abs=1e-6)


def test_predictions_of_a_sum_equal_those_of_scikit_learn() -> None:
    x, y = sample(3, 80)
    x = x[:, :1]
    kernel = Sum((Ard(1.5, (0.8,)), Periodic(0, 1.3, 0.7, 1.1, 6.0)))
    theirs = ConstantKernel(1.5**2) * RBF(0.8) + ConstantKernel(0.7**2) * ExpSineSquared(1.1, 1.3) * RBF(6.0)
    at = np.linspace(-6, 6, 40)[:, None]
    mean, variance = Posterior(kernel, NOISE, x, y).predict(at)
    their_mean, their_std = sklearn_model(theirs, x, y).predict(at, return_std=True)
    assert mean == pytest.approx(their_mean, abs=1e-6)
    assert variance + NOISE**2 == pytest.approx(their_std**2, abs=1e-6)


def test_the_likelihood_and_its_gradient_equal_those_of_scikit_learn() -> None:
    x, y = sample(4)
    theirs = sklearn_model(ConstantKernel(1.5**2) * RBF([0.8, 2.0]), x, y)
    value, gradient = theirs.log_marginal_likelihood(theirs.kernel_.theta, eval_gradient=True)
    nll, ours = negative_log_likelihood(ARD, NOISE, x, y)
    assert nll == pytest.approx(-value, abs=1e-8)
    # Their first and last hyperparameters are variances, ours are standard deviations.
    assert ours == pytest.approx(-gradient * np.array([2.0, 1.0, 1.0, 2.0]), abs=1e-6)


@given(st.integers(0, 500), st.sampled_from([ARD, BOTH]), st.floats(0.05, 2.0))
def test_the_gradient_is_that_of_finite_differences(seed: int, kernel: Kernel, noise: float) -> None:
    x, y = sample(seed, 25)
    theta = np.append(kernel.theta, np.log(noise))

    def value(at: np.ndarray) -> float:
        return negative_log_likelihood(kernel.with_theta(at[:-1]), float(np.exp(at[-1])), x, y)[0]

    numeric = [(value(theta + s) - value(theta - s)) / 2e-5 for s in 1e-5 * np.eye(len(theta))]
    assert negative_log_likelihood(kernel, noise, x, y)[1] == pytest.approx(numeric, rel=1e-4, abs=1e-4)


@given(st.integers(0, 500), st.sampled_from([ARD, BOTH]), st.integers(0, 20), st.lists(st.booleans(), max_size=25))
def test_a_window_that_slid_equals_one_made_from_scratch(seed: int, kernel: Kernel, n: int, drops: list[bool]) -> None:
    x, y = sample(seed, n + len(drops))
    slid, first = Posterior(kernel, NOISE, x[:n], y[:n]), 0
    for end, drop in enumerate(drops, start=n + 1):
        if drop and len(slid):
            slid.replace_oldest(x[end - 1], y[end - 1])
            first += 1
        else:
            slid.append(x[end - 1], y[end - 1])
    fresh = Posterior(kernel, NOISE, x[first:], y[first:])
    at = np.random.default_rng(seed).uniform(-5, 5, size=(10, 2))
    assert len(slid) == len(fresh)
    for ours, theirs in zip(slid.predict(at), fresh.predict(at), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-8)


@given(st.integers(0, 500), st.integers(1, 8), st.integers(1, 30))
def test_errors_ahead_are_those_of_models_that_had_not_seen_the_rest(seed: int, lead: int, last: int) -> None:
    x, y = sample(seed, 25)
    slid = Posterior(BOTH, NOISE, x[:20], y[:20])
    for at in range(20, 25):
        slid.replace_oldest(x[at], y[at])
    x, y = x[5:], y[5:]
    errors, std = slid.errors_ahead(lead, last)
    judged = range(max(lead, 20 - last), 20)
    assert len(errors) == len(std) == len(judged)
    for at, error, expected in zip(judged, errors, std, strict=True):
        before = at - lead + 1
        mean, variance = Posterior(BOTH, NOISE, x[:before], y[:before]).predict(x[at : at + 1])
        assert error == pytest.approx(y[at] - mean[0], abs=1e-8)
        assert expected**2 == pytest.approx(variance[0] + NOISE**2, abs=1e-8)


def test_a_point_is_appended_or_replaced_without_factoring_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    x, y = sample(10, 30)
    model = Posterior(ARD, NOISE, x[:28], y[:28])

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("O(n^3)")

    for name in ("scipy.linalg.cholesky", "numpy.linalg.cholesky", "policies.gaussian.posterior.cholesky"):
        monkeypatch.setattr(name, refuse)
    model.append(x[28], y[28])
    model.replace_oldest(x[29], y[29])
    assert len(model) == 29


def test_a_window_of_several_blocks_of_rows_slides_and_its_copy_too() -> None:
    x, y = sample(11, 160)
    slid = Posterior(BOTH, NOISE, x[:150], y[:150])
    for new in range(150, 157):
        slid.replace_oldest(x[new], y[new])
    slid = pickle.loads(pickle.dumps(slid))
    for new in range(157, 160):
        slid.replace_oldest(x[new], y[new])
    fresh = Posterior(BOTH, NOISE, x[10:], y[10:])
    at = np.random.default_rng(5).uniform(-5, 5, size=(10, 2))
    for ours, theirs in zip(slid.predict(at), fresh.predict(at), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-8)


def test_a_long_slide_does_not_drift() -> None:
    x = np.arange(3000.0)[:, None] * 0.05
    y = np.sin(x[:, 0])
    kernel = Ard(1.0, (0.7,))
    slid = Posterior(kernel, 0.05, x[:60], y[:60])
    for end in range(60, 3000):
        slid.replace_oldest(x[end], y[end])
    fresh = Posterior(kernel, 0.05, x[-60:], y[-60:])
    at = np.linspace(148, 152, 30)[:, None]
    for ours, theirs in zip(slid.predict(at), fresh.predict(at), strict=True):
        assert ours == pytest.approx(theirs, abs=1e-8)


def test_before_any_observation_the_mean_is_zero_and_the_variance_the_kernels() -> None:
    mean, variance = Posterior(ARD, NOISE, np.zeros((0, 2)), np.zeros(0)).predict(np.ones((3, 2)))
    assert mean.tolist() == [0, 0, 0]
    assert variance == pytest.approx([2.25] * 3)


@given(st.integers(0, 500))
def test_another_observation_never_makes_less_sure(seed: int) -> None:
    x, y = sample(seed, 15)
    model = Posterior(ARD, NOISE, x[:-1], y[:-1])
    before = model.predict(x)[1]
    model.append(x[-1], y[-1])
    after = model.predict(x)[1]
    assert (after <= before + 1e-10).all()
    assert (after >= 0).all()


def test_points_without_noise_are_reproduced() -> None:
    x, y = sample(5, 20)
    mean, variance = Posterior(ARD, 1e-4, x, y).predict(x)
    assert mean == pytest.approx(y, abs=1e-3)
    assert variance.max() < 1e-6


def test_the_same_point_twice_can_be_appended() -> None:
    x, y = sample(6, 10)
    model = Posterior(ARD, 1e-6, x, y)
    for _ in range(3):
        model.append(x[0], y[0])
    assert model.predict(x[:1])[0] == pytest.approx(y[:1], abs=1e-3)


def test_the_fit_finds_what_the_data_was_drawn_from() -> None:
    rng = np.random.default_rng(11)
    x = rng.uniform(-5, 5, size=(250, 2))
    truth = Ard(2.0, (0.7, 3.0))
    covariance = truth.covariance(x, x) + 0.3**2 * np.eye(len(x))
    y = np.linalg.cholesky(covariance) @ rng.normal(size=len(x))
    found = fit(Ard(1.0, (1.0, 1.0)), 0.1, x, y, bounds=BOUNDS)
    assert found.converged
    assert np.exp(found.kernel.theta) == pytest.approx([2.0, 0.7, 3.0], rel=0.35)
    assert found.noise == pytest.approx(0.3, rel=0.2)
    assert found.nll <= negative_log_likelihood(truth, 0.3, x, y)[0]


def test_the_same_fit_ends_at_the_same_place_and_no_worse_than_it_began() -> None:
    x, y = sample(7)
    runs = [fit(ARD, NOISE, x, y, bounds=BOUNDS) for _ in range(2)]
    assert runs[0] == runs[1]
    assert runs[0].nll <= negative_log_likelihood(ARD, NOISE, x, y)[0]


def test_bounds_are_kept() -> None:
    x, y = sample(8)
    found = fit(ARD, 5.0, x, y, bounds=[(0.9, 1.1)] * 3 + [(1.0, 2.0)])
    assert all(0.9 - 1e-9 <= value <= 1.1 + 1e-9 for value in np.exp(found.kernel.theta))
    assert 1.0 - 1e-9 <= found.noise <= 2.0 + 1e-9


def test_nonsense_is_refused() -> None:
    x, y = sample(9, 5)
    with pytest.raises(ValueError, match="5 points have 4 values"):
        Posterior(ARD, NOISE, x, y[:4])
    with pytest.raises(ValueError, match="noise must be positive"):
        Posterior(ARD, 0.0, x, y)
    with pytest.raises(ValueError, match="1 values that are not finite"):
        Posterior(ARD, NOISE, x, np.array([1, 2, np.nan, 4, 5]))
    with pytest.raises(ValueError, match="no observation to forget"):
        Posterior(ARD, NOISE, x[:0], y[:0]).replace_oldest(x[0], 1.0)
    with pytest.raises(ValueError, match="4 pairs of bounds"):
        fit(ARD, NOISE, x, y, bounds=BOUNDS[:3])
    with pytest.raises(ValueError, match="positive and in order"):
        fit(ARD, NOISE, x, y, bounds=[(2.0, 1.0)] * 4)


def test_a_factor_that_fails_says_which_kernel_and_what_to_do() -> None:
    same = np.zeros((6, 2))
    with pytest.raises(np.linalg.LinAlgError, match=r"Ard.*raise the noise"):
        Posterior(Ard(1e6, (1.0, 1.0)), 1e-12, same, np.zeros(6))
