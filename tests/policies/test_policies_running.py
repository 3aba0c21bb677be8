"""Every policy with the real scheduler: when VMs start and end, the reported reasons, and steady decisions."""

from __future__ import annotations

from itertools import pairwise

import pytest

from policies.planning.plain import CpuOptions, StaticOptions
from policies.planning.planner import PlannerOptions
from policies.planning.queueing import ForecastBy, QueueingOptions
from tests.policies.policy_play import BOOT_S, HOME_PER_S, PERIOD_S, Play, Played, bursts, noisy

CYCLE_S = 60.0
BURST_S = 20.0
END_S = 360.0
LEARNED_S = 240.0
WINDOW_S = 2.0
BURSTS = bursts(every_s=CYCLE_S, for_s=BURST_S, low=400.0, high=1800.0)
PLANNER = PlannerOptions(window_s=WINDOW_S, windows=16, history=200, cycles_s=(CYCLE_S,))


def next_burst_s(at_s: float) -> float:
    """Time from a moment to the start of the next burst; 0 within a burst."""
    return max(0.0, CYCLE_S - BURST_S - at_s % CYCLE_S)


def ahead(played: Played, name: str, from_s: float) -> list[float]:
    """How long before a burst those VMs were launched that a policy wanted."""
    return [next_burst_s(at_s) for at_s, why in played.started if at_s >= from_s and why.startswith(f"q: {name}:")]


@pytest.fixture(scope="module")
def reactive() -> Played:
    return Play(None, BURSTS).until(END_S)


@pytest.fixture(scope="module")
def planned() -> Played:
    return Play(PLANNER, BURSTS).until(END_S)


# -------------------------------------------------------------------------------------------------------------- planner


def test_until_it_is_trained_the_planner_is_equation_1_and_says_so(planned: Played, reactive: Played) -> None:
    untrained_s = 24 * WINDOW_S
    early = [decision for decision in planned.decisions if decision.at_s < untrained_s]
    assert {decision.advice.wanted for decision in early} == {None}
    assert "of 24 windows were seen before the first training" in early[len(early) // 2].advice.why
    before = [started for started in planned.started if started[0] < untrained_s]
    assert before == [started for started in reactive.started if started[0] < untrained_s]
    assert before


def test_a_planner_that_cannot_be_trained_is_equation_1_for_ever(reactive: Played) -> None:
    played = Play(PLANNER, BURSTS, fail_fits=True).until(200.0)
    assert played.started == [started for started in reactive.started if started[0] < 200.0]
    assert "training failed (no memory)" in played.decisions[-1].advice.why
    assert len(played.fits) > 1


def test_a_trained_planner_has_a_vm_there_when_the_burst_comes(planned: Played, reactive: Played) -> None:
    before = ahead(planned, "planner", LEARNED_S)
    assert len(before) >= (END_S - LEARNED_S) / CYCLE_S
    assert all(BOOT_S - 2 * WINDOW_S <= s <= BOOT_S + 3 * WINDOW_S for s in before), before
    assert planned.mean_latency_s(LEARNED_S) < 0.7 * reactive.mean_latency_s(LEARNED_S)
    assert planned.usd <= 1.1 * reactive.usd


def test_the_plan_is_told_with_its_forecast_and_what_else_it_would_cost(planned: Played) -> None:
    decision = next(d for d in planned.decisions if d.at_s >= LEARNED_S and d.advice.wanted)
    advice = decision.advice
    assert advice.expected is not None
    assert advice.expected.low <= advice.expected.rate <= advice.expected.high
    assert {"rate", "queueing", "cpu"} == set(advice.rules)
    prices = {option.vms: option.usd for option in advice.options}
    assert 0 in prices
    assert len(prices) > 1
    assert decision.policy == "planner"


def test_forecasts_hold_what_they_promise(planned: Played) -> None:
    seen = [
        (decision.advice.expected, BURSTS(decision.at_s + decision.advice.expected.in_s))
        for decision in planned.decisions
        if decision.at_s >= LEARNED_S and decision.advice.expected is not None
    ]
    steady = [pair for pair in seen if min(abs(pair[1] - 400.0), abs(pair[1] - 1800.0)) < 1]
    good = [abs(expected.rate - rate) < 0.25 * 1800.0 for expected, rate in steady]
    assert sum(good) > 0.7 * len(good)


def test_when_the_load_no_longer_repeats_the_planner_steps_back() -> None:
    random_rate = noisy(900.0, 500.0, seed=3)

    def rate(at_s: float) -> float:
        # A walk: the last value is the best forecast, and a cycle that was learned is wrong.
        return BURSTS(at_s) if at_s < LEARNED_S else 300.0 + 0.5 * random_rate(at_s // 40 * 40)

    played = Play(PLANNER, rate, max_vms=1).until(LEARNED_S + 120.0)
    assert any(d.advice.wanted is not None for d in played.decisions if d.at_s < LEARNED_S)
    later = [d.advice.why for d in played.decisions if d.at_s > LEARNED_S]
    assert any("the model steps back" in why for why in later)


def test_a_rise_that_is_foreseen_gets_its_vms_as_it_goes_on() -> None:
    """Each VM comes when it is needed, although all of them are requested within one billing period."""

    def rising(at_s: float) -> float:
        return 400.0 + max(0.0, at_s % CYCLE_S - BURST_S) / (CYCLE_S - BURST_S) * 3200.0

    played = Play(PLANNER, rising, max_vms=3).until(END_S)
    planned_s = [at_s for at_s, why in played.started if at_s >= LEARNED_S and "start_vm_above" not in why]
    apart_s = [later - earlier for earlier, later in pairwise(planned_s)]
    assert any(WINDOW_S <= each < PERIOD_S for each in apart_s), apart_s
    advice = [decision.advice for decision in played.decisions if decision.advice.wanted is not None]
    assert all(each.rising_to >= (each.wanted or 0) for each in advice)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize(
    "policy",
    [PLANNER, QueueingOptions(window_s=WINDOW_S), CpuOptions(start_above=0.7, stop_below=0.5, window_s=WINDOW_S)],
    ids=["planner", "queueing", "cpu"],
)
def test_noise_starts_at_most_one_vm_in_a_billing_period(policy: PlannerOptions, seed: int) -> None:
    """The load is around the point at which one engine is just enough, unless the limit is really broken."""
    played = Play(policy, noisy(0.72 * HOME_PER_S, 0.25 * HOME_PER_S, seed)).until(300.0)
    unforced = [at_s for at_s, why in played.started if "start_vm_above" not in why]
    switches = sorted([*unforced, *played.ended_s])
    for earlier, later in pairwise(unforced):
        assert later - earlier >= PERIOD_S
    # A VM is given back a few slots before its period would begin anew.
    for earlier, later in pairwise(switches):
        assert later - earlier >= PERIOD_S - 5.0, switches


# ------------------------------------------------------------------------------------------------------------- queueing


@pytest.mark.parametrize("forecast", ["seasonal", "gp"])
def test_queueing_that_knows_the_cycle_is_ahead_of_the_burst(forecast: ForecastBy, reactive: Played) -> None:
    options = QueueingOptions(window_s=WINDOW_S, forecast=forecast, cycle_s=CYCLE_S, history=200)
    played = Play(options, BURSTS).until(END_S)
    before = ahead(played, "queueing", LEARNED_S)
    assert before
    assert all(0 <= s <= BOOT_S + 3 * WINDOW_S for s in before)
    assert played.mean_latency_s(LEARNED_S) < 0.8 * reactive.mean_latency_s(LEARNED_S)


def test_naive_queueing_wants_a_vm_as_soon_as_the_burst_is_there(reactive: Played) -> None:
    played = Play(QueueingOptions(window_s=WINDOW_S), BURSTS).until(END_S)
    advice = next(d.advice for d in played.decisions if d.advice.wanted)
    assert "queueing: 1 VMs" in advice.why
    assert "forecast naively" in advice.why
    assert [option.vms for option in advice.options] == [0, 1, 2]
    assert played.mean_latency_s() <= 1.1 * reactive.mean_latency_s()


def test_queueing_takes_a_cancellation_back_before_it_starts_anew() -> None:
    """A dip shorter than the horizon terminates no VM."""

    def rate(at_s: float) -> float:
        return 400.0 if 100 <= at_s < 104 or at_s < 20 else 1500.0

    played = Play(QueueingOptions(window_s=WINDOW_S, buffer_limit=50), rate).until(160.0)
    assert played.wanted(106.0) == 0 or "until they are cancelled" in " ".join(d.advice.why for d in played.decisions)
    assert not [at_s for at_s in played.ended_s if 100 <= at_s <= 130]


# ------------------------------------------------------------------------------------------------------- cpu and static


def test_static_keeps_its_vms_whatever_comes() -> None:
    played = Play(StaticOptions(2), lambda _: 100.0).until(100.0)
    assert len(played.started) == 2
    assert played.ended_s == []
    assert all("static: 2 VMs always" in why for _, why in played.started)


def test_the_cpu_rule_follows_what_the_hosts_tell() -> None:
    played = Play(
        CpuOptions(start_above=0.7, stop_below=0.5, window_s=WINDOW_S),
        lambda _: 100.0,
        cpu=lambda at_s: 0.9 if 20 <= at_s < 40 else 0.1,
    ).until(120.0)
    (started_s, why), *more = played.started
    assert 20 < started_s < 30
    assert "CPU load 90% > 70%" in why
    assert len(played.ended_s) == 1 + len(more)


def test_without_a_measured_cpu_the_busy_part_stands_in() -> None:
    played = Play(CpuOptions(start_above=0.7, stop_below=0.5, window_s=WINDOW_S), lambda _: 900.0).until(40.0)
    assert "CPU load 9" in played.started[0][1]


def test_a_policy_that_wants_more_never_passes_max_vms() -> None:
    played = Play(StaticOptions(5), lambda _: 100.0, max_vms=2).until(150.0)
    assert len(played.started) == 2


def test_several_vms_that_are_wanted_at_once_are_one_change() -> None:
    """With periods of an hour, three VMs must not take two hours."""
    played = Play(StaticOptions(3), lambda _: 100.0, max_vms=3).until(10.0)
    assert [at_s for at_s, _ in played.started] == pytest.approx([1.0, 2.0, 3.0])
