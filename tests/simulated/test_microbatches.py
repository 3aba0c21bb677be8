"""Queries in micro-batches with event time, and a gateway before them, compared with results computed by hand."""

from __future__ import annotations

import math
from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.simulated.events import EventSet
from engines.simulated.microbatches import Closed, MicroBatchedQuery, ProducedEvents
from engines.simulated.placement import SimulatedVm
from engines.simulated.query import Consumer, Edge, QueryGraph, Vertex, constant
from gateway.query.flow import delivery
from gateway.simulate.runs.microbatches import Cutting, EngineCosts, Play
from tests.simulated.cepsim_data import operator, producer, window

PER_S = 20.0
WINDOW_S = 10.0


def chain(*between: Vertex, per_s: float = PER_S, selectivity: float = 1.0) -> QueryGraph:
    vertices = [producer("in", per_s), *between, Consumer(name="out", ipe=1e6)]
    names = [vertex.name for vertex in vertices]
    edges = [Edge(a, b, selectivity if a == "filter" else 1.0) for a, b in pairwise(names)]
    return QueryGraph("q", vertices, edges)


def windowed(results: float = 3.0, per_s: float = PER_S, window_s: float = WINDOW_S) -> QueryGraph:
    average = window("average", window_s=window_s, advance_s=window_s, function=constant(results), ipe=4e6)
    return chain(operator("filter", ipe=2e6), average, operator("store", ipe=5e6), per_s=per_s, selectivity=0.5)


def due(first: int, end: int) -> ProducedEvents:
    return ProducedEvents(end - first, first / PER_S, end / PER_S)


def test_work_is_counted_event_by_event_and_result_by_result() -> None:
    query = MicroBatchedQuery(windowed())
    assert query.batch([due(0, 100), due(100, 201)]).instructions == pytest.approx(201 * (1e6 + 2e6 + 0.5 * 4e6))
    last = query.batch([due(201, 202)])
    assert last.instructions == pytest.approx((1e6 + 2e6 + 0.5 * 4e6) + 3 * (5e6 + 1e6))


def test_a_window_closes_in_the_micro_batch_after_the_one_that_saw_its_end() -> None:
    query = MicroBatchedQuery(windowed())
    assert query.batch([due(0, 200)]).closed == ()  # the event at 10 s is not among them
    assert query.batch([due(200, 201)]).closed == ()  # it is, but this micro-batch began before it was known
    about_200: Any = pytest.approx(200)
    assert query.batch([due(201, 202)]).closed == (Closed(0, EventSet(3, 5.0, 0.0, {"in": about_200})),)


@given(st.lists(st.integers(1, 150), min_size=2, max_size=30), st.data())
def test_however_it_is_cut_each_event_is_in_the_window_in_which_it_was_due(
    sizes: list[int], data: st.DataObject
) -> None:
    query, cuts = MicroBatchedQuery(windowed()), list(pairwise([0, *accumulate(sizes)]))
    closed: list[Closed] = []
    while cuts:
        together = data.draw(st.integers(1, len(cuts)))
        batch, cuts = cuts[:together], cuts[together:]
        closed += query.batch([due(*cut) for cut in batch]).closed
    assert [one.number for one in closed] == list(range(len(closed)))
    for one in closed:
        assert one.events.totals["in"] == pytest.approx(PER_S * WINDOW_S)
        assert one.events.at_s == pytest.approx((one.number + 0.5) * WINDOW_S)
    before_last = sum(sizes) / PER_S
    assert len(closed) <= before_last / WINDOW_S


def test_what_is_no_chain_with_one_tumbling_window_is_refused() -> None:
    slides = window("average", window_s=10.0, advance_s=5.0)
    for query in (
        chain(operator("filter")),
        chain(slides),
        chain(
            window("one", window_s=1.0, advance_s=1.0),
            window("two", window_s=1.0, advance_s=1.0),
        ),
    ):
        with pytest.raises(ValueError, match="micro-batches"):
            MicroBatchedQuery(query)


# ------------------------------------------------------------------------------------------------ a gateway before it

FREE = EngineCosts(batch_s=0.0, run_s=0.0, between_s=0.0, commit_s=0.0)
FAST = 1e9


def latencies(play: Play, windows: int) -> list[float]:
    return [one.closed.events.emitted(one.at_s).latency_s for one in play.run(windows, 1e4)]


def test_with_work_that_costs_nothing_a_window_waits_for_its_linger_and_for_three_parts() -> None:
    cutting = Cutting(linger_s=0.25)
    # The event behind its end lingers and waits for the micro-batch before; then its own; then the one that closes.
    for waited_s in latencies(Play(windowed(), SimulatedVm("host", FAST), FREE, cutting), 20):
        after_s = waited_s - WINDOW_S / 2
        assert delivery.PART_S - cutting.linger_s < after_s <= cutting.linger_s + 3 * (delivery.PART_S + 0.11)


def test_every_micro_batch_waits_until_the_sink_has_the_one_before() -> None:
    slow = EngineCosts(batch_s=0.7, run_s=0.0, between_s=0.2, commit_s=0.3)
    play = Play(windowed(), SimulatedVm("host", FAST), slow, Cutting())
    play.run(10, 1e4)
    assert play.host.batches <= play.visible[-1].at_s / (0.7 + 0.2 + 0.3) + 1
    assert play.host.batches >= play.visible[-1].at_s / (0.7 + 0.2 + 0.3 + 0.2)


def test_in_overload_it_serves_what_runs_and_micro_batches_leave_of_a_core() -> None:
    per_s, event_s = 2000.0, 1e-3
    costs = EngineCosts(batch_s=0.3, run_s=0.05, between_s=0.1, commit_s=0.02)
    one_event = 1e6 + 2e6 + 0.5 * 4e6
    play = Play(windowed(0.0, per_s), SimulatedVm("host", one_event / 1e6 / event_s), costs, Cutting())
    visible = play.run(6, 1e4)
    served_per_s = 5 * WINDOW_S * per_s / (visible[-1].at_s - visible[0].at_s)
    assert served_per_s < 1 / event_s
    in_batch = served_per_s * visible[-1].at_s / play.host.batches
    runs = in_batch / 250  # a quarter of a second of work at most, once it is behind
    cycle_s = in_batch * event_s + 0.3 + 0.1 + 0.02 + 0.05 * runs
    assert served_per_s == pytest.approx(in_batch / cycle_s, rel=0.15)


def test_below_saturation_it_serves_what_comes_and_latency_does_not_grow() -> None:
    costs = EngineCosts(batch_s=0.3, run_s=0.02, between_s=0.1, commit_s=0.02)
    play = Play(windowed(), SimulatedVm("host", 1e4), costs, Cutting(linger_s=0.5))
    waited_s = latencies(play, 30)
    assert max(waited_s) - min(waited_s) < 2 * 1.6
    assert math.isclose(sum(waited_s[:10]), sum(waited_s[-10:]), rel_tol=0.1)


def test_two_plays_are_the_same() -> None:
    costs = EngineCosts(0.3, 0.02, 0.1, 0.02)
    one, other = (Play(windowed(), SimulatedVm("host", 1e4), costs, Cutting()).run(5, 1e4) for _ in range(2))
    assert one == other


def test_the_sinks_tick_is_the_gateways() -> None:
    assert Cutting().tick_s == delivery.TICK_S
