"""Vertices finish at their own times within a tick: what latency says then, and that it hardly depends on the tick."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.simulated.generators import Bursts, ConstantRate, RecordedRates
from engines.simulated.placement import Link, SimulatedVm
from engines.simulated.query import Operator, Vertex
from engines.simulated.scheduling import DynamicShares, ProportionalToIpe, WorkConserving
from tests.simulated.cepsim_data import MILLION, Watched, chain, consumer, operator, producer, window

DROPS = 500
"""Into how many parts the oracle cuts what is served in a tick."""

Strategy = Callable[[], Any]
STRATEGIES = st.sampled_from([ProportionalToIpe, DynamicShares, WorkConserving])
COSTS = st.lists(st.sampled_from([0.1, 1.0, 7.0]), min_size=2, max_size=4)


def vertices(costs: Sequence[float], generator: Any) -> list[Vertex]:
    """A chain's vertices; ``costs`` in millions of instructions an event."""
    ipe = [cost * MILLION for cost in costs]
    middle: list[Operator] = [operator(f"o{at}", ipe=each) for at, each in enumerate(ipe[1:-1])]
    return [producer("p", generator, ipe=ipe[0]), *middle, consumer("c", ipe=ipe[-1])]


def dropwise(came: Sequence[float], costs: Sequence[float], mips: float) -> list[tuple[float, float, float]]:
    """What leaves a chain on one VM in each tick of 1 s: how much, the mean age of its drops, and how long its turn is.

    In a tick each vertex has a turn, with instructions in proportion to its costs. A drop leaves when the drops before
    it and it itself were executed, but not before it came, in the middle of a tick.
    """
    waiting, left, gone = np.zeros(len(costs) + 1), [], 0.0
    until = np.array(list(accumulate(came)))
    for tick, events in enumerate(came):
        at_s, begins_s, served = float(tick), float(tick), 0.0
        waiting[0] += events
        for vertex, cost in enumerate(costs):
            served = min(waiting[vertex], mips / sum(costs))
            waiting[vertex] -= served
            waiting[vertex + 1] += served
            begins_s, at_s = at_s, at_s + served * cost / mips
        parts = (np.arange(DROPS) + 0.5) / DROPS
        came_s = np.minimum(np.searchsorted(until, gone + parts * served), tick) + 0.5
        ages_s = np.maximum(begins_s + parts * (at_s - begins_s), came_s) - came_s
        left.append((served, float(ages_s.mean()), at_s - begins_s))
        gone += served
    return left


@settings(max_examples=60, deadline=None)
@given(came=st.lists(st.just(0.0) | st.floats(0.1, 30), min_size=1, max_size=12), costs=COSTS, mips=st.floats(5, 300))
def test_latency_is_late_by_less_than_the_last_turn_and_as_many_events_leave(
    came: list[float], costs: list[float], mips: float
) -> None:
    generator = RecordedRates([at + 0.5 for at in range(len(came))], came)
    watched = Watched(chain(*vertices(costs, generator)), mips=mips)
    watched.simulation.run(len(came))
    true = [one for one in dropwise(came, costs, mips) if one[0] > 1e-9]
    assert watched.processed("c") == pytest.approx([events for events, _, _ in true])
    if true:
        error_s = (watched.latency.latency_s("c") or 0.0) - float(np.mean([age_s for _, age_s, _ in true]))
        rounding_s = len(came) / DROPS
        assert -rounding_s <= error_s <= max(turn_s for _, _, turn_s in true) + rounding_s
        assert error_s < 1.0


@settings(max_examples=60, deadline=None)
@given(
    costs=COSTS,
    load=st.floats(0.01, 0.99),
    tick_s=st.sampled_from([0.01, 0.1, 0.5, 1.0]),
    strategy=STRATEGIES,
)
def test_a_vm_with_time_for_all_delays_events_by_less_than_half_a_tick(
    costs: list[float], load: float, tick_s: float, strategy: Strategy
) -> None:
    watched = Watched(
        chain(*vertices(costs, 10.0)),
        mips=10 * sum(costs) / load,
        interval_s=tick_s,
        scheduling=lambda _: strategy(),
    )
    watched.simulation.run(10 * tick_s)
    # They come evenly, so a VM that executed each at once would not delay them at all.
    assert 0.0 <= (watched.latency.latency_s("c") or 0.0) <= max(0.0, load - 0.5) * tick_s + 1e-6


@settings(max_examples=30, deadline=None)
@given(tick_s=st.sampled_from([0.01, 0.1, 0.25, 0.5]), size_s=st.sampled_from([1.0, 2.0]), load=st.floats(0.01, 0.9))
def test_a_window_delays_by_half_its_size_and_less_than_a_tick(tick_s: float, size_s: float, load: float) -> None:
    few = window(
        "w", window_s=size_s, advance_s=size_s, function=lambda _: 0.05
    )  # a tick is long enough for the result
    watched = Watched(chain(producer("p", 10), few, consumer("c")), mips=30 / load, interval_s=tick_s)
    watched.simulation.run(3 * size_s + tick_s)
    assert len(watched.processed("c")) == 3
    assert size_s / 2 - 1e-9 <= (watched.latency.latency_s("c") or 0.0) < size_s / 2 + tick_s


def overloaded(tick_s: float) -> Watched:
    return Watched(chain(*vertices([1, 2, 1], 10.0)), mips=30, interval_s=tick_s)


def bursty(tick_s: float) -> Watched:
    load = Bursts(ConstantRate(5), every_s=5, for_s=1, times=4)
    return Watched(chain(*vertices([1, 1], load)), mips=20, interval_s=tick_s, scheduling=lambda _: WorkConserving())


def stored(tick_s: float) -> Watched:
    """A window whose results wait for a slow store, as in the paper's use case."""
    averages = window("w", window_s=5, advance_s=5, function=lambda _: 20.0)
    query = chain(producer("p", 10), averages, operator("s", ipe=8 * MILLION), consumer("c"))
    return Watched(query, mips=110, interval_s=tick_s)


def apart(tick_s: float) -> Watched:
    return Watched(chain(*vertices([1, 1, 1], 10.0)), mips=50, elsewhere=("o0",), link=Link(1.3), interval_s=tick_s)


@pytest.mark.parametrize(
    ("make", "per_s"), [(overloaded, 30 / 4), (bursty, 8.0), (stored, 150 / 20), (apart, 10 * (20 - 2.6) / 20)]
)
def test_shorter_ticks_change_latency_by_less_than_the_tick(make: Callable[[float], Watched], per_s: float) -> None:
    found = {}
    for tick_s in (0.1, 0.05, 0.01):
        watched = make(tick_s)
        watched.simulation.run(20)
        found[tick_s] = watched.latency.latency_s("c") or 0.0
        assert watched.throughput.per_s("c", 20) == pytest.approx(per_s, rel=0.02)
    assert abs(found[0.1] - found[0.01]) < 0.1
    assert abs(found[0.05] - found[0.01]) < 0.05


def test_a_turn_begins_when_the_vm_is_up() -> None:
    vm = SimulatedVm("v", 1.0, ready_s=1.0, ends_s=9.0, down_s=((2.0, 3.0), (4.0, 6.0)))
    assert [vm.up_s(at_s) for at_s in (0.0, 1.5, 2.0, 2.5, 3.0, 5.0, 7.0)] == [1.0, 1.5, 3.0, 3.0, 3.0, 6.0, 7.0]
