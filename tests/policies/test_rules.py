from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.planning.clairvoyant import Blocks, clairvoyant
from policies.planning.rules import (
    CpuThreshold,
    Damped,
    DampingSettings,
    Observation,
    QueueingRule,
    RateRule,
    Rule,
    RuleVerdict,
    Static,
)
from policies.queueing.degree import BufferGoal
from policies.queueing.stationary import mmc_within


def seen(**changes: object) -> Observation:
    usual = {"at_s": 0.0, "engines": 3, "input_rate": 250.0, "busy_s": 0.01}
    return Observation(**{**usual, **changes})  # type: ignore[arg-type]


def test_static_never_changes() -> None:
    assert Static(4).decide(seen(input_rate=1e9)).engines == 4


@pytest.mark.parametrize(
    ("cpu", "engines"),
    [
        ((0.9, 0.6), 4),
        ((0.71, 0.71), 4),
        ((0.7, 0.7), 3),
        ((0.5, 0.5), 3),
        ((0.6, 0.3), 2),
        ((0.9,), 3),
        ((0.1, 0.9, 0.9), 4),
    ],
)
def test_cpu_thresholds_are_70_and_50_percent_over_two_frames(cpu: tuple[float, ...], engines: int) -> None:
    assert CpuThreshold(most=8).decide(seen(cpu=cpu)).engines == engines


def test_cpu_thresholds_stay_between_one_engine_and_the_most() -> None:
    assert CpuThreshold(most=3).decide(seen(cpu=(1.0, 1.0))).engines == 3
    assert CpuThreshold(most=3).decide(seen(cpu=(0.0, 0.0), engines=1)).engines == 1


@given(st.floats(0, 2000), st.integers(1, 20))
def test_the_qt_rule_wants_the_least_that_keeps_the_limit(rate: float, engines: int) -> None:
    goal = BufferGoal(15, 0.95)
    wanted = QueueingRule(goal, most=20).decide(seen(input_rate=rate, engines=engines)).engines
    kept = [count for count in range(1, 21) if mmc_within(rate, 0.01, count, 15) >= 0.95]
    assert wanted == (kept[0] if kept else 20)


@given(st.floats(0, 5000), st.floats(1e-4, 0.1))
def test_ds2_wants_just_enough_capacity(rate: float, busy_s: float) -> None:
    wanted = RateRule(most=1000).decide(seen(input_rate=rate, busy_s=busy_s)).engines
    assert wanted / busy_s >= rate * (1 - 1e-6)
    assert wanted == 1 or (wanted - 1) / busy_s < rate


def test_ds2_says_why() -> None:
    assert RateRule(most=9).decide(seen()).why == "250 events/s at 100 an engine need 3"


# ----------------------------------------------------------------------------------------------------------- damping


def played(
    rule: Rule, rates: list[float], *, slot_s: float = 1.0, broken: frozenset[int] = frozenset()
) -> list[RuleVerdict]:
    """Let a rule decide slot by slot, and carry out its decision at once."""
    engines, verdicts = 1, []
    for slot, rate in enumerate(rates):
        verdict = rule.decide(seen(at_s=float(slot), engines=engines, input_rate=rate, limit_broken=slot in broken))
        engines = verdict.engines
        verdicts.append(verdict)
    return verdicts


def switches(verdicts: list[RuleVerdict]) -> list[int]:
    counts = [1, *(verdict.engines for verdict in verdicts)]
    return [slot for slot, (a, b) in enumerate(itertools.pairwise(counts)) if a != b]


@given(st.integers(0, 1000), st.floats(0.0, 0.5), st.integers(5, 60))
def test_a_noisy_trace_switches_at_most_once_a_billing_period(seed: int, band: float, period: int) -> None:
    rates = np.random.default_rng(seed).uniform(0, 900, 300).tolist()
    found = switches(played(Damped(RateRule(most=9), DampingSettings(band, float(period))), rates))
    assert all(later - earlier >= period for earlier, later in itertools.pairwise(found))


def test_a_bare_rule_flaps_where_the_dead_band_holds_still() -> None:
    rates = (200 + 15 * np.random.default_rng(1).normal(size=200)).tolist()
    assert len(switches(played(RateRule(most=9), rates))) > 50
    assert len(switches(played(Damped(RateRule(most=9), DampingSettings(0.25, 0.0)), rates))) <= 3


def test_a_limit_that_is_broken_does_not_wait_but_only_upwards() -> None:
    rates = [150.0, 450.0, 450.0, 50.0]
    rule = Damped(RateRule(most=9), DampingSettings(0.0, 1000.0))
    verdicts = played(rule, rates, broken=frozenset({2, 3}))
    assert [verdict.engines for verdict in verdicts] == [2, 2, 5, 5]
    assert "5 wanted (450 events/s at 100 an engine need 5), but 999 s of cool-down left" in verdicts[1].why
    assert "cool-down left" in verdicts[3].why


@given(st.floats(0, 900), st.integers(1, 9), st.floats(0, 0.9))
def test_damping_never_leaves_what_the_rule_wants_further_behind(rate: float, engines: int, band: float) -> None:
    rule = RateRule(most=9)
    bare = rule.decide(seen(input_rate=rate, engines=engines)).engines
    damped = Damped(rule, DampingSettings(band, 10.0)).decide(seen(input_rate=rate, engines=engines)).engines
    assert min(bare, engines) <= damped <= max(bare, engines)


# ------------------------------------------------------------------------------------------------------- clairvoyant


def brute_force(miss: np.ndarray, blocks: Blocks) -> float:
    """Try every possible course of every single VM."""
    most = miss.shape[1] - 1

    def best(window: int, paid_until: tuple[int, ...], before: int) -> float:
        if window == len(miss):
            return 0.0
        lasting = [until for until in paid_until if until > window]
        ended = [until for until in paid_until if until == window]
        lowest = math.inf
        for renewed, started in itertools.product(range(len(ended) + 1), range(most + 1)):
            serving = len(lasting) + renewed + started
            if serving > most:
                continue
            rent = blocks.window_usd * (renewed * blocks.period + started * blocks.first)
            change = blocks.rebalance_usd if serving != before else 0.0
            after = (
                *lasting,
                *[window + blocks.period] * renewed,
                *[window + blocks.first - blocks.boot] * started,
            )
            lowest = min(lowest, rent + change + miss[window, serving] + best(window + 1, after, serving))
        return lowest

    return best(0, (), 0)


@given(
    st.lists(st.lists(st.floats(0, 10), min_size=3, max_size=3), min_size=1, max_size=6),
    st.integers(1, 4),
    st.integers(1, 3),
    st.floats(0, 2),
)
def test_the_optimum_is_that_of_brute_force(
    losses: list[list[float]], first: int, period: int, rebalance: float
) -> None:
    miss = np.sort(np.array(losses), axis=1)[:, ::-1]
    blocks = Blocks(first=first, period=period, boot=first // 2 if first > 1 else 0, rebalance_usd=rebalance)
    found = clairvoyant(miss, blocks)
    assert found.cost_usd == pytest.approx(brute_force(miss, blocks))
    counts = [0, *found.vms]
    changes = sum(a != b for a, b in itertools.pairwise(counts))
    lost = sum(miss[window, vms] for window, vms in enumerate(found.vms))
    assert found.renting_usd + changes * rebalance + lost == pytest.approx(found.cost_usd)


def test_a_burst_is_served_by_whole_blocks_that_end_after_it() -> None:
    need = [0] * 5 + [2] * 6 + [0] * 9
    miss = np.array([[1000.0 * max(0, n - vms) for vms in range(4)] for n in need])
    found = clairvoyant(miss, Blocks(first=4, period=4))
    assert all(vms >= n for vms, n in zip(found.vms, need, strict=True))
    assert found.renting_usd == 16.0
    assert found.cost_usd == 16.0


def test_booting_is_paid_for() -> None:
    miss = np.array([[100.0, 0.0]] * 3)
    assert clairvoyant(miss, Blocks(first=4, period=4, boot=1)).cost_usd == 4.0
    assert clairvoyant(np.vstack([miss, miss[:1]]), Blocks(first=4, period=4, boot=1)).cost_usd == 8.0


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 8))
def test_no_static_number_is_cheaper(need: list[int], period: int) -> None:
    miss = np.array([[5.0 * max(0, n - vms) for vms in range(4)] for n in need])
    best = clairvoyant(miss, Blocks(first=period, period=period)).cost_usd
    for vms in range(4):
        rent = vms * period * math.ceil(len(need) / period)
        assert best <= rent + miss[:, vms].sum() + 1e-9


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="states: use longer windows"):
        clairvoyant(np.zeros((2, 9)), Blocks(first=60, period=60))
    with pytest.raises(ValueError, match="must serve in its first block"):
        Blocks(first=2, period=2, boot=2)
    with pytest.raises(ValueError, match="at least one engine"):
        RateRule(most=0)
    with pytest.raises(ValueError, match="in order"):
        CpuThreshold(most=2, high=0.4)
    with pytest.raises(ValueError, match="cannot have been seen"):
        seen(engines=0)
    with pytest.raises(ValueError, match="dead band"):
        DampingSettings(1.5, 0.0)
