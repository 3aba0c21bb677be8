from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.sparse import lil_array
from scipy.sparse.csgraph import dijkstra

from policies.arrays import Array
from policies.money.billing import BillingTerms
from policies.planning.stategraph import (
    Costs,
    CostSettings,
    Horizon,
    RentedVm,
    costs,
    missed_events,
    shortest_path,
    vms_to_start,
)

WINDOW_S = 60.0
TERMS = BillingTerms(period_s=600.0, minimum_s=600.0, usd_per_hour=6.0, usd_per_gb_sent=0.1)
"""A VM costs 0.1 USD a window and 1 USD a period of ten windows."""


def settings(**changes: object) -> CostSettings:
    return CostSettings(**{"miss_usd": 0.01, "rebalance_usd": 0.05, "terms": TERMS, **changes})  # type: ignore[arg-type]


def horizon(rates: list[float], most_vms: int = 3, *, std: float = 0.0, busy_s: float = 0.01) -> Horizon:
    """Each engine does 1 / busy_s events a second."""
    shape = (len(rates), most_vms + 1)
    return Horizon(
        window_s=WINDOW_S,
        input_rate=np.array(rates, dtype=float),
        input_std=np.full(len(rates), std),
        busy_s=np.full(shape, busy_s),
        busy_std_s=np.zeros(shape),
    )


def random_costs(seed: int, windows: int, states: int) -> Costs:
    """Costs in eighths, so that sums are exact and some paths cost the same; some windows allow few VMs."""
    rng = np.random.default_rng(seed)

    def eighths(most: int) -> Array:
        return rng.integers(0, 8 * most, size=(windows, states)) / 8

    return Costs(
        miss=eighths(4),
        egress=eighths(1),
        kept=eighths(2),
        entered=np.cumsum(eighths(2), axis=1),
        rebalance_usd=float(rng.integers(0, 8) / 8),
        rise_most=rng.choice([0, 1, 2, states], size=windows),
        std=np.zeros((windows, states)),
    )


@given(st.integers(0, 10_000), st.integers(1, 8), st.integers(1, 6))
@example(688, 7, 3)  # an arc that costs nothing
def test_the_path_is_as_short_as_scipys(seed: int, windows: int, states: int) -> None:
    found = random_costs(seed, windows, states)
    start = seed % states
    graph = lil_array(((windows + 1) * states + 1, (windows + 1) * states + 1))
    for window, before, after in itertools.product(range(windows), range(states), range(states)):
        if np.isfinite(found.arcs[window, before, after]):
            # One more for each arc: scipy takes an arc that costs nothing for none.
            graph[window * states + before, (window + 1) * states + after] = 1.0 + found.arcs[window, before, after]
    last = (windows + 1) * states
    for state in range(states):
        graph[windows * states + state, last] = 1.0
    path = shortest_path(found, start)
    assert path.cost_usd == pytest.approx(dijkstra(graph.tocsr(), indices=start)[last] - windows - 1.0)
    walked = [start, *path.states]
    arcs = [found.arcs[window, a, b] for window, (a, b) in enumerate(itertools.pairwise(walked))]
    assert list(path.arc_usd) == arcs
    assert np.isfinite(arcs).all()
    assert sum(arcs) == pytest.approx(path.cost_usd)


@given(st.integers(0, 10_000), st.integers(0, 3))
def test_no_other_path_is_cheaper_and_alternatives_are_priced(seed: int, at: int) -> None:
    found = random_costs(seed, 4, 3)
    path = shortest_path(found, 1, at)
    walks = {
        walk: sum(found.arcs[window, a, b] for window, (a, b) in enumerate(itertools.pairwise((1, *walk))))
        for walk in itertools.product(range(3), repeat=4)
    }
    least = min(walks.values())
    assert path.cost_usd == pytest.approx(least)
    assert path.states == min(walk for walk, cost in walks.items() if cost == least)  # the one with fewer VMs
    for state in range(3):
        through = min(cost for walk, cost in walks.items() if walk[at] == state)
        assert path.alternatives_usd[state] == pytest.approx(through)


def test_missed_events_are_those_of_equations_9_and_10() -> None:
    missed, std = missed_events(horizon([100.0, 250.0, 900.0]), settings(selectivity=0.5))
    assert missed.tolist() == [[0, 0, 0, 0], [4500, 1500, 0, 0], [24000, 21000, 18000, 15000]]
    assert (std == 0).all()


@given(st.floats(50, 500), st.floats(1, 100), st.floats(0, 0.003))
def test_missed_events_of_an_uncertain_input_are_as_simulated(rate: float, std: float, busy_std: float) -> None:
    ahead = Horizon(
        window_s=WINDOW_S,
        input_rate=np.array([rate]),
        input_std=np.array([std]),
        busy_s=np.full((1, 2), 0.01),
        busy_std_s=np.full((1, 2), busy_std),
    )
    mean, deviation = missed_events(ahead, settings())
    rng = np.random.default_rng(3)
    drawn = rng.normal(rate, std, 50_000) * WINDOW_S
    for vms in (0, 1):
        capacity = WINDOW_S / 0.01 * (1 + vms)
        missed = np.maximum(drawn - rng.normal(capacity, capacity * busy_std / 0.01, len(drawn)), 0)
        whole = np.hypot(std * WINDOW_S, capacity * busy_std / 0.01)
        noise = 5 * max(missed.std(), 1.0) / np.sqrt(len(drawn)) + 1.0
        assert mean[0, vms] == pytest.approx(missed.mean(), abs=noise)
        assert deviation[0, vms] == pytest.approx(missed.std(), rel=0.05, abs=0.01 * whole)


def test_vms_come_for_the_burst_and_go_after_it() -> None:
    rates = [80.0] * 5 + [350.0] * 10 + [80.0] * 5
    path = shortest_path(costs(horizon(rates), settings(), []), 0)
    assert path.states == (*[0] * 5, *[3] * 10, *[0] * 5)


def test_cheap_misses_and_dear_misses_are_weighed() -> None:
    rates = [80.0] * 3 + [350.0] * 3 + [80.0] * 3
    states = [
        max(shortest_path(costs(horizon(rates), settings(miss_usd=usd), []), 0).states) for usd in (1e-7, 1e-4, 1e-2)
    ]
    assert states[0] == 0
    assert states[-1] == 3
    assert states == sorted(states)


def test_a_vm_must_be_asked_for_before_it_can_serve() -> None:
    rates = [350.0] * 8
    found = costs(horizon(rates), settings(boot_s=170.0), [])
    path = shortest_path(found, 0)
    assert path.states == (0, 0, 0, 3, 3, 3, 3, 3)
    assert vms_to_start(path, WINDOW_S, 170.0, fleet_size=0) == 3
    assert vms_to_start(path, WINDOW_S, 170.0, fleet_size=2) == 1
    later = shortest_path(costs(horizon([80.0] * 5 + rates), settings(boot_s=170.0), []), 0)
    assert vms_to_start(later, WINDOW_S, 170.0, fleet_size=0) == 0
    assert vms_to_start(path, WINDOW_S, 3600.0, fleet_size=0) == 0


def test_vms_that_boot_already_serve_when_they_are_ready_and_cost_no_start() -> None:
    booting = [RentedVm(ready_in_s=60.0, paid_for_s=540.0), RentedVm(ready_in_s=100.0, paid_for_s=580.0)]
    found = costs(horizon([350.0] * 6), settings(boot_s=170.0), booting)
    path = shortest_path(found, 0)
    assert path.states == (0, 1, 2, 3, 3, 3)
    assert found.renting[1, 0, 1] == 0
    assert found.renting[2, 1, 2] == 0
    assert found.renting[3, 2, 3] == pytest.approx(0.1 + (170 + 300) / 600)


def test_what_is_paid_for_is_kept_and_given_back_before_the_next_period() -> None:
    fleet = [RentedVm(0.0, 170.0), RentedVm(0.0, 410.0)]
    found = costs(horizon([50.0] * 12), settings(rebalance_usd=0.0, miss_usd=0.0), fleet)
    # Paid time costs nothing; the VM whose period ends first goes first.
    for window in range(12):
        assert found.renting[window, 2, 2] == (1.0 if window in (2, 6) else 0.0)
        assert found.renting[window, 1, 1] == (1.0 if window == 6 else 0.0)
        assert found.renting[window, 2, 0] == 0
    busy = costs(horizon([150.0] * 12), settings(rebalance_usd=0.0), fleet)
    states = shortest_path(busy, 2).states
    assert min(states) == 1
    assert states[2] == 1


def blocks_usd(run_s: float, boot_s: float) -> float:
    return TERMS.time_usd(TERMS.billed_s(0.0, boot_s + run_s))


@pytest.mark.parametrize("boot_s", [0.0, 90.0])
def test_a_new_vm_costs_what_its_blocks_cost_on_average(boot_s: float) -> None:
    found = costs(horizon([50.0] * 200), settings(boot_s=boot_s), [])
    errors = []
    for run in range(1, 190):
        planned = found.renting[5, 0, 1] + found.renting[6 : 5 + run, 1, 1].sum()
        errors.append(planned - blocks_usd(run * WINDOW_S, boot_s))
    assert max(map(abs, errors)) <= 0.5 + 1e-9
    assert abs(np.mean(errors)) < 0.06


def test_traffic_is_paid_for_only_when_home_cannot_carry_all() -> None:
    found = costs(horizon([50.0, 150.0, 300.0]), settings(sent_bytes_per_event=1000.0), [])
    per_event = 0.1 * 1000 / 1e9
    assert found.egress[0].tolist() == [0, 0, 0, 0]
    assert found.egress[1] == pytest.approx(np.array([0, 4500, 6000, 6750]) * per_event)
    assert found.egress[2] == pytest.approx(np.array([0, 6000, 12000, 13500]) * per_event)


def test_a_change_costs_rc_and_staying_does_not() -> None:
    found = costs(horizon([50.0]), settings(rebalance_usd=7.0), [RentedVm(0.0, 600.0)])
    assert found.arcs[0, 1, 0] == 7.0
    assert found.arcs[0, 1, 1] == 0.0


rates_lists = st.lists(st.floats(0, 500), min_size=1, max_size=12)


@given(rates_lists, st.integers(0, 3), st.floats(0, 300), st.floats(0, 60))
def test_a_plan_never_costs_more_than_doing_nothing(
    rates: list[float], serving: int, boot_s: float, std: float
) -> None:
    fleet = [RentedVm(0.0, 100.0 * (vm + 1)) for vm in range(serving)]
    found = costs(horizon(rates, std=std), settings(boot_s=boot_s), fleet)
    path = shortest_path(found, serving)
    nothing = sum(float(found.arcs[window, serving, serving]) for window in range(len(rates)))
    assert path.cost_usd <= nothing + 1e-9
    assert np.isfinite(path.cost_usd)
    first = int(np.ceil(boot_s / WINDOW_S - 1e-9))
    assert all(state <= serving for state in path.states[:first])


@given(rates_lists, st.floats(1, 100))
def test_uncertainty_never_makes_a_plan_look_cheaper(rates: list[float], std: float) -> None:
    sure = shortest_path(costs(horizon(rates), settings(), []), 0)
    unsure = shortest_path(costs(horizon(rates, std=std), settings(), []), 0)
    assert unsure.cost_usd >= sure.cost_usd * (1 - 1e-9) - 1e-9


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="must fit together"):
        Horizon(
            window_s=1.0,
            input_rate=np.ones(2),
            input_std=np.ones(2),
            busy_s=np.ones((3, 2)),
            busy_std_s=np.ones((3, 2)),
        )
    with pytest.raises(ValueError, match="busy times longer than 0 s"):
        horizon([1.0], busy_s=0.0)
    with pytest.raises(ValueError, match="must not be negative"):
        horizon([-1.0])
    with pytest.raises(ValueError, match="must not be negative"):
        settings(miss_usd=-1.0)
    with pytest.raises(ValueError, match="only go up to 1"):
        costs(horizon([1.0], most_vms=1), settings(), [RentedVm(0, 1), RentedVm(0, 1)])
    with pytest.raises(ValueError, match="there is no window 1"):
        shortest_path(costs(horizon([1.0]), settings(), []), 0, 1)
    with pytest.raises(ValueError, match="there is no state 9"):
        shortest_path(costs(horizon([1.0]), settings(), []), 9)
