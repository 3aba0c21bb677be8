from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.stationary import erlang_c, mdc_distribution, mdc_within, mmc_within, utilisation
from tests.policies.queue_simulation import system_sizes

loads = st.floats(0.02, 0.97)
servers = st.integers(1, 25)


@given(loads, servers)
def test_erlang_c_is_its_closed_form(rho: float, instances: int) -> None:
    offered = rho * instances
    last = offered**instances / math.factorial(instances) / (1 - rho)
    closed = last / (sum(offered**k / math.factorial(k) for k in range(instances)) + last)
    assert erlang_c(offered, 1.0, instances) == pytest.approx(closed, rel=1e-9)


@given(loads, servers, st.integers(0, 80))
def test_mmc_is_the_birth_and_death_process(rho: float, instances: int, limit: int) -> None:
    offered = rho * instances
    weights = [1.0]
    for count in range(1, 3000):
        weights.append(weights[-1] * offered / min(count, instances))
    expected = math.fsum(weights[: limit + 1]) / math.fsum(weights)
    assert mmc_within(offered * 4, 0.25, instances, limit) == pytest.approx(expected, abs=1e-9)


def iterated_mdc(offered: float, instances: int, states: int = 400) -> np.ndarray:
    """Follow the count from one service time to the next until it no longer changes."""
    poisson = np.array([math.exp(-offered + k * math.log(offered) - math.lgamma(k + 1)) for k in range(states)])
    now = np.zeros(states)
    now[0] = 1.0
    for _ in range(4000):
        left = np.concatenate([[now[: instances + 1].sum()], now[instances + 1 :]])
        after = np.convolve(left, poisson)[:states]
        if np.abs(after - now).max() < 1e-14:
            break
        now = after
    return np.asarray(now / now.sum())


@pytest.mark.parametrize(("rho", "instances"), [(0.3, 1), (0.8, 1), (0.7, 3), (0.9, 6), (0.5, 12), (0.85, 20)])
def test_mdc_is_what_iterating_its_chain_leads_to(rho: float, instances: int) -> None:
    expected = iterated_mdc(rho * instances, instances)
    found, _ = mdc_distribution(rho * instances, 1.0, instances)
    n = min(len(found), 150)
    assert found[:n] == pytest.approx(expected[:n], abs=1e-9)
    for limit in (0, 3, 15, 60, 110):
        assert mdc_within(rho * instances, 1.0, instances, limit) == pytest.approx(
            expected[: limit + 1].sum(), abs=1e-9
        )


@given(st.floats(0.05, 0.95))
def test_md1_waits_as_pollaczek_and_khinchine_say(rho: float) -> None:
    found, ratio = mdc_distribution(rho, 1.0, 1)
    counts = np.arange(len(found))
    tail = found[-1] * ratio / (1 - ratio) * (counts[-1] + 1 / (1 - ratio))
    mean = float((counts * found).sum()) + tail
    assert mean == pytest.approx(rho + rho**2 / (2 * (1 - rho)), rel=1e-6)
    assert found[0] == pytest.approx(1 - rho, abs=1e-9)


@given(loads, servers)
def test_mdc_is_a_distribution_with_the_busy_instances_that_littles_law_says(rho: float, instances: int) -> None:
    found, ratio = mdc_distribution(rho * instances, 1.0, instances)
    rest = found[-1] * ratio / (1 - ratio)
    assert found.min() >= 0
    assert found.sum() + rest == pytest.approx(1.0, abs=1e-9)
    busy = (np.minimum(np.arange(len(found)), instances) * found).sum() + instances * rest
    assert busy == pytest.approx(rho * instances, rel=1e-6)


@pytest.mark.parametrize(("formula", "busy"), [(mmc_within, "exponential"), (mdc_within, "constant")])
@pytest.mark.parametrize(("rho", "instances", "limit"), [(0.75, 2, 4), (0.85, 5, 9), (0.8, 8, 15)])
def test_formulas_agree_with_a_simulation(formula: object, busy: str, rho: float, instances: int, limit: int) -> None:
    shares = []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        n = 40_000
        busy_s = rng.exponential(1.0, n) if busy == "exponential" else np.ones(n)
        sizes = system_sizes(rng.exponential(1 / (rho * instances), n), busy_s, instances, rng)
        shares.append(np.mean(sizes <= limit))
    error = 4 * np.std(shares, ddof=1) / math.sqrt(len(shares)) + 0.003
    assert formula(rho * instances, 1.0, instances, limit) == pytest.approx(np.mean(shares), abs=error)  # type: ignore[operator]


@given(loads, servers, st.integers(0, 60))
def test_constant_times_never_make_longer_queues_and_more_instances_never_hurt(
    rho: float, instances: int, limit: int
) -> None:
    offered = rho * instances
    for within in (mmc_within, mdc_within):
        few, more = (within(offered, 1.0, c, limit) for c in (instances, instances + 1))
        assert 0 <= few <= more + 1e-9
        assert more <= 1 + 1e-12
    if limit >= instances:
        assert mdc_within(offered, 1.0, instances, limit) >= mmc_within(offered, 1.0, instances, limit) - 1e-9


def test_an_overloaded_queue_keeps_no_limit_and_an_idle_one_every() -> None:
    for within in (mmc_within, mdc_within):
        assert within(10.0, 0.5, 5, 1000) == 0.0
        assert within(0.0, 0.5, 5, 0) == 1.0
    with pytest.raises(ValueError, match="never settles down"):
        mdc_distribution(10.0, 0.5, 5)
    with pytest.raises(ValueError, match="no queue has"):
        utilisation(1.0, 1.0, 0)
