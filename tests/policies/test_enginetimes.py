"""The cost of a batch and of an event are separated from sums of slots; the true values are drawn, not computed."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.planning.enginetimes import BatchCosts, EngineTimes
from policies.signals import HOME, QuerySlot


def told(batch_s: float, event_s: float, sizes: list[int], *, noise: float = 0.0, seed: int = 1) -> BatchCosts:
    draw = random.Random(seed)
    costs = BatchCosts()
    for size in sizes:
        costs.fade()
        costs.add(3, 3 * size, 3 * (batch_s + event_s * size) * (1 + noise * draw.uniform(-1, 1)))
    return costs


@given(
    batch_s=st.floats(0.001, 0.2),
    event_s=st.floats(1e-5, 1e-2),
    sizes=st.lists(st.integers(5, 2000), min_size=10, max_size=60).filter(lambda sizes: max(sizes) > 2 * min(sizes)),
)
def test_exact_costs_are_found(batch_s: float, event_s: float, sizes: list[int]) -> None:
    latency_s = 2.0
    costs = told(batch_s, event_s, sizes)
    found = costs.event_s(latency_s)
    # As many events as fit into half the latency take all of it; an engine is never slower than it was seen to be.
    events = (latency_s / 2 - batch_s) / event_s
    mean_s = costs.busy_s / costs.events
    truth = min((latency_s / 2) / events, mean_s)
    assert found in (pytest.approx(truth, rel=1e-3), pytest.approx(mean_s))


def test_noise_changes_little() -> None:
    sizes = [50 + 37 * (at % 20) for at in range(200)]
    found = told(0.1, 0.0005, sizes, noise=0.1).event_s(2.0)
    assert found == pytest.approx(0.0005 / 0.9, rel=0.1)


def test_small_batches_do_not_make_an_engine_slow() -> None:
    """At 60 events a batch each event took 2.2 ms; under load the engine needs 0.55."""
    sizes = [40 + 2 * (at % 20) for at in range(100)]
    costs = told(0.1, 0.0005, sizes)
    assert costs.busy_s / costs.events > 0.002
    assert costs.event_s(2.0) == pytest.approx(0.000556, rel=0.01)


def test_batches_of_one_size_tell_only_their_mean() -> None:
    assert told(0.1, 0.001, [100] * 20).event_s(2.0) == pytest.approx(0.002)


def test_nothing_measured_is_nothing_known() -> None:
    assert BatchCosts().event_s(1.0) is None
    times = EngineTimes(1.0)
    assert times.vm_event_s is None
    assert times.home_engines == 1.0


def slot(lane: str, events: int, busy_s: float) -> QuerySlot:
    return QuerySlot(
        query="q", latency_s=0.0, completed_events={lane: events}, batches={lane: 1}, busy_s={lane: busy_s}
    )


def test_a_vm_counts_as_home_until_it_was_measured() -> None:
    times = EngineTimes(1.0)
    times.observe(slot(HOME, 100, 0.1))
    assert times.vm_event_s == pytest.approx(0.001)
    assert times.home_engines == pytest.approx(1.0)
    times.observe(slot("vm-1", 100, 0.05))
    assert times.vm_event_s == pytest.approx(0.0005)
    assert times.home_engines == pytest.approx(0.5)
