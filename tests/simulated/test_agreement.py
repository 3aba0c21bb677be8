"""Both models of the simulator come to the same: the worlds of ``options.drawn`` without faults, on the same events."""

from __future__ import annotations

from statistics import median

from agreement import Pair, both, calm

WORLDS = range(1, 41)
NEAR = 0.10
APART = {
    5: "a third VM, at a threshold",
    15: "sheds: shedding follows what was measured a slot ago, and single runs make that jump",
    21: "sheds, as 15",
    22: "switches whole from home to a VM half as fast: one slot sooner or later changes the backlog for long",
    24: "sheds, as 15",
    28: "a VM at a threshold: two, one or none by the events drawn",
    32: "six or seven VMs, each at a threshold",
    34: "the VM is given back and asked for again by thresholds of its load",
    36: "a query comes home at L_d, and then the budget no longer lets it go: two ways, by the events drawn",
}
"""The worlds in which the models may differ by more, and why (decision 0090)."""


def apart(of_runs: float, of_fluid: float) -> float:
    return abs(of_fluid - of_runs) / of_runs if of_runs else float(of_fluid > 0)


def by_how_much(pair: Pair) -> tuple[float, float]:
    return apart(pair.runs_mean_s, pair.fluid.mean_s), apart(pair.runs.usd, pair.fluid.usd)


def test_latency_and_cost_agree_in_both_models() -> None:
    found = {seed: by_how_much(both(calm(seed))) for seed in WORLDS}
    latency, cost = ([one[at] for one in found.values()] for at in (0, 1))
    assert median(latency) <= 0.03
    assert median(cost) <= 0.01
    assert sum(one <= NEAR for one in latency) >= 31
    assert sum(one <= NEAR for one in cost) >= 35
    unknown = {seed for seed, one in found.items() if max(one) > NEAR} - APART.keys()
    # What stands at a threshold may stand at its other side where floating point differs.
    assert len(unknown) <= 1, {seed: found[seed] for seed in unknown}
