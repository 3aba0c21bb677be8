from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from policies.queueing.classify import anderson_darling, chi_square_p, classify
from policies.queueing.distributions import Deterministic, Distribution, Exponential, Normal, Pareto, Uniform

EXAMPLES: list[Distribution] = [
    Exponential(0.2),
    Normal(1.0, 0.1),
    Uniform(0.1, 0.2),
    Pareto(0.05, 2.0),
    Deterministic(0.3),
]


def drawn(distribution: Distribution, n: int, seed: int) -> np.ndarray:
    return distribution.quantile(np.random.default_rng(seed).uniform(size=n))


@pytest.mark.parametrize("distribution", EXAMPLES, ids=lambda d: d.name)
@pytest.mark.parametrize("n", [400, 1600])
def test_samples_are_recognised(distribution: Distribution, n: int) -> None:
    found = [classify(drawn(distribution, n, seed)) for seed in range(40)]
    assert sum(one.best.name == distribution.name for one in found) >= 37
    assert sum(one.accepted for one in found) >= 37


def test_a_true_hypothesis_is_rejected_as_often_as_the_level_says() -> None:
    for distribution in EXAMPLES[:4]:
        rejected = 0
        for seed in range(300):
            matches = {m.distribution.name: m for m in classify(drawn(distribution, 400, seed)).matches}
            rejected += matches[distribution.name].p_value < 0.05
        assert 0.01 <= rejected / 300 <= 0.13, distribution


def test_parameters_are_those_that_were_drawn_from() -> None:
    exponential = classify(drawn(Exponential(0.2), 5000, 1)).best
    assert isinstance(exponential, Exponential)
    assert exponential.mean_s == pytest.approx(0.2, rel=0.05)
    uniform = classify(drawn(Uniform(0.1, 0.2), 5000, 1)).best
    assert isinstance(uniform, Uniform)
    assert (uniform.low_s, uniform.high_s) == pytest.approx((0.1, 0.2), rel=0.02)
    pareto = classify(drawn(Pareto(0.05, 2.0), 5000, 1)).best
    assert isinstance(pareto, Pareto)
    assert (pareto.least_s, pareto.shape) == pytest.approx((0.05, 2.0), rel=0.05)
    normal = classify(drawn(Normal(1.0, 0.1), 5000, 1)).best
    assert isinstance(normal, Normal)
    assert (normal.mean_s, normal.std_s) == pytest.approx((1.0, 0.1), rel=0.05)


def test_the_anderson_darling_statistic_is_scipys() -> None:
    for name, kind, source in (("expon", Exponential, Exponential(0.2)), ("norm", Normal, Normal(1.0, 0.1))):
        sample = drawn(source, 300, 3)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            theirs = stats.anderson(sample, name).statistic
        assert anderson_darling(kind.fitted(sample), sample) == pytest.approx(theirs, rel=1e-6)


def test_the_chi_square_statistic_is_scipys() -> None:
    sample, hypothesis = drawn(Uniform(1.0, 2.0), 200, 3), Uniform(1.0, 2.0)
    counts = np.histogram(sample, bins=np.linspace(1.0, 2.0, 21))[0]
    assert chi_square_p(hypothesis, sample, 2) == pytest.approx(stats.chisquare(counts, ddof=2).pvalue)


def test_what_fits_nothing_gets_the_nearest_and_is_said_not_to_fit() -> None:
    rng = np.random.default_rng(0)
    two_humps = np.concatenate([rng.normal(1.0, 0.05, 800), rng.normal(9.0, 0.05, 800)])
    found = classify(two_humps)
    assert not found.accepted
    distances = [match.distance for match in found.matches]
    assert distances == sorted(distances)


@given(st.sampled_from(EXAMPLES), st.lists(st.floats(0.001, 0.999), min_size=2, max_size=20))
def test_quantile_and_cdf_are_inverse(distribution: Distribution, probabilities: list[float]) -> None:
    at = np.array(sorted(probabilities))
    times = distribution.quantile(at)
    assert (np.diff(times) >= 0).all()
    if not isinstance(distribution, Deterministic):
        assert distribution.cdf(times) == pytest.approx(at, abs=1e-9)


@pytest.mark.parametrize("distribution", EXAMPLES, ids=lambda d: d.name)
def test_means_are_those_of_samples(distribution: Distribution) -> None:
    middle = distribution.quantile((np.arange(1_000_000) + 0.5) / 1_000_000).mean()
    assert distribution.mean_s == pytest.approx(middle, rel=0.01)


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        classify([1.0] * 10)
    with pytest.raises(ValueError, match="negative"):
        classify([-1.0] * 100)
    with pytest.raises(ValueError, match="all 0 s"):
        classify([0.0] * 100)
    for make in (lambda: Exponential(0.0), lambda: Normal(1.0, 0.0), lambda: Uniform(2.0, 1.0), lambda: Pareto(0, 1)):
        with pytest.raises(ValueError, match="no such distribution"):
            make()


def test_a_sample_with_a_time_of_0_s_is_no_pareto() -> None:
    sample = drawn(Exponential(1.0), 400, 0)
    sample[0] = 0.0
    found = classify(sample)
    assert found.best.name == "exponential"
    assert "Pareto" not in {match.distribution.name for match in found.matches}
