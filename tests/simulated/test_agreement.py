"""Both models of the simulator give the same results: worlds of ``options.drawn`` without faults, same events."""

from __future__ import annotations

from statistics import median

import pytest

from tests.simulated.agreement import Pair, always_rented, both, calm

WORLDS = range(1, 41)
NEAR = 0.10
CALM_NEAR = 0.12
"""A fluid cuts all runs of a slot alike, so runs that grow with what waits differ a little."""
APART = {
    15: (0.25, 0.05),
    21: (0.15, 0.05),
    22: (0.30, 0.24),
    32: (0.47, 0.11),
    34: (0.15, 0.05),
    35: (0.07, 1.0),
}
"""The worlds in which the models differ by more, and by how much at most in latency and in cost (decision 0090): there
thresholds decide when VMs are rented or events shed. With VMs always there, both models agree.

The bounds are what was measured and about a fifth more: they keep it from becoming worse.
"""


def apart(of_runs: float, of_fluid: float) -> float:
    return abs(of_fluid - of_runs) / of_runs if of_runs else float(of_fluid > 0)


def by_how_much(pair: Pair) -> tuple[float, float]:
    return apart(pair.runs_mean_s, pair.fluid.mean_s), apart(pair.runs.usd, pair.fluid.usd)


def test_latency_and_cost_agree_in_both_models() -> None:
    found = {seed: by_how_much(both(calm(seed))) for seed in WORLDS}
    latency, cost = ([one[at] for one in found.values()] for at in (0, 1))
    assert median(latency) <= 0.023
    assert median(cost) <= 0.01
    assert sum(one <= NEAR for one in latency) >= 34
    assert sum(one <= NEAR for one in cost) >= 37
    for seed, (most_latency, most_cost) in APART.items():
        assert found[seed][0] <= most_latency, (seed, found[seed])
        assert found[seed][1] <= most_cost, (seed, found[seed])
    unknown = {seed for seed, one in found.items() if max(one) > NEAR} - APART.keys()
    # What stands at a threshold may stand at its other side where floating point differs.
    assert len(unknown) <= 1, {seed: found[seed] for seed in unknown}


@pytest.mark.parametrize("seed", APART)
def test_worlds_apart_agree_when_nothing_is_decided_about_vms(seed: int) -> None:
    latency, cost = by_how_much(both(always_rented(calm(seed))))
    assert latency <= CALM_NEAR
    assert cost <= CALM_NEAR
