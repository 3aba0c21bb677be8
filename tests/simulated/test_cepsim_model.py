"""The query model: graphs, generators, placement, scheduling, bounded queues."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.simulated.events import EventSet
from engines.simulated.generators import (
    Bursts,
    ConstantRate,
    Generator,
    Poisson,
    RateSteps,
    RecordedRates,
    UniformIncrease,
)
from engines.simulated.metrics import Latency, Throughput
from engines.simulated.placement import SimulatedVm, SpreadQueries
from engines.simulated.query import Edge, QueryGraph
from engines.simulated.running import Output, RunningJoin, RunningProducer
from engines.simulated.scheduling import DynamicShares, ProportionalToIpe, WorkConserving
from engines.simulated.simulation import Simulation
from tests.simulated.cepsim_data import Watched, chain, consumer, join, operator, producer, window

GENERATORS: dict[str, tuple[Generator, float]] = {
    "uniform": (ConstantRate(5), 50.0),
    "increase": (UniformIncrease(10, over_s=4), 20 + 60.0),
    "increase at once": (UniformIncrease(10, over_s=0), 100.0),
    "steps": (RateSteps((2.0, 3.0, 1.0), (10.0, 0.0, 4.0)), 20 + 0 + 4 * 5.0),
    "trace": (RecordedRates([0.0, 0.5, 9.0, 10.0], [100, 1, 2, 4]), 103.0),
    "bursts": (Bursts(ConstantRate(5), every_s=4, for_s=1, times=3), 50 + 3 * 5 * 2.0),
}


@pytest.mark.parametrize("name", GENERATORS)
@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.floats(0, 10), max_size=8))
def test_ticks_do_not_change_how_much_is_generated(name: str, cuts: list[float]) -> None:
    generator, expected = GENERATORS[name]
    times = sorted({0.0, *cuts, 10.0})
    made = sum(generator.events(from_s, to_s) for from_s, to_s in pairwise(times))
    if name != "bursts":  # spreads what falls into a tick evenly over it
        assert made == pytest.approx(expected)
    assert generator.events(0, 2) + generator.events(2, 4) == pytest.approx(generator.events(0, 4))


def test_bursts_come_when_they_are_due() -> None:
    bursts, expected = GENERATORS["bursts"]
    assert [bursts.events(at, at + 1) for at in range(5)] == pytest.approx([15, 5, 5, 5, 15])
    assert sum(bursts.events(at / 4, (at + 1) / 4) for at in range(40)) == pytest.approx(expected)


def test_poisson_arrivals_vary_as_much_as_their_mean() -> None:
    generator = Poisson(ConstantRate(400), np.random.default_rng(1))
    counts = [generator.events(at / 100, (at + 1) / 100) for at in range(20_000)]
    assert np.mean(counts) == pytest.approx(4, rel=0.03)
    assert np.var(counts) == pytest.approx(4, rel=0.06)
    again = Poisson(ConstantRate(400), np.random.default_rng(1))
    assert [again.events(at / 100, (at + 1) / 100) for at in range(100)] == counts[:100]


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: ConstantRate(-1), "not negative"),
        (lambda: ConstantRate(math.nan), "finite"),
        (lambda: RecordedRates([1, 0], [1, 1]), "ascend"),
        (lambda: RecordedRates([1], [1, 1]), "1 times"),
        (lambda: Bursts(ConstantRate(1), every_s=1, for_s=2, times=2), "does not fit"),
        (lambda: operator("a", ipe=0), "instructions per event"),
        (lambda: operator("a", queue_events=0), "must be positive"),
        (lambda: window("w", window_s=5, advance_s=2), "not a multiple"),
        (lambda: Edge("a", "b", -0.5), "selectivity"),
        (lambda: SimulatedVm("v", 0), "MIPS"),
        (lambda: chain(producer("p"), operator("p"), consumer("c")), "same name"),
        (lambda: QueryGraph("q", [producer("p"), consumer("c")], [Edge("p", "x")]), "not a vertex"),
        (lambda: QueryGraph("q", [producer("p"), operator("o")], [Edge("p", "o")]), "lacks an output"),
        (lambda: QueryGraph("q", [producer("p"), consumer("c")], [Edge("p", "c")] * 2), "two edges"),
        (
            lambda: QueryGraph(
                "q",
                [producer("p"), operator("a"), operator("b"), consumer("c")],
                [Edge("p", "a"), Edge("a", "b"), Edge("b", "a"), Edge("b", "c")],
            ),
            "cycle",
        ),
        (
            lambda: Simulation([chain(producer("p"), consumer("c"))], [SimulatedVm("a", 1)], {"p": "a"}),
            "c of query q is on no",
        ),
        (lambda: SpreadQueries().place([], []), "no VM"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()  # type: ignore[operator]


def test_queries_spread_over_vms_by_their_speed() -> None:
    queries = [chain(producer(f"p{n}"), consumer(f"c{n}")) for n in range(6)]
    placed = SpreadQueries().place(queries, [SimulatedVm("slow", 100), SimulatedVm("fast", 200)])
    by_vm = [placed[f"p{n}"] for n in range(6)]
    assert by_vm.count("slow") == 2
    assert by_vm.count("fast") == 4
    assert all(placed[f"p{n}"] == placed[f"c{n}"] for n in range(6))


def test_queries_on_one_vm_share_its_instructions() -> None:
    queries = [chain(producer(f"p{n}", 10), consumer(f"c{n}", ipe=3e6)) for n in range(2)]
    throughput = Throughput(queries)
    vms = [SimulatedVm("v", 40)]
    simulation = Simulation(queries, vms, SpreadQueries().place(queries, vms), interval_s=1, calculators=[throughput])
    simulation.run(4)
    # 8 million instructions for one event of each: 5 events of either query in a tick.
    assert [throughput.per_s(f"c{n}", 4) for n in range(2)] == pytest.approx([5, 5])


# ----------------------------------------------------------------------------------------------------------- scheduling


def test_the_default_strategy_wastes_what_a_vertex_does_not_need() -> None:
    query = chain(producer("p", 10), operator("f", ipe=2e6), consumer("c", ipe=7e6), selectivity=0.1)
    usual, saving = Watched(query, mips=50), Watched(query, mips=50, scheduling=lambda _: WorkConserving())
    for watched in (usual, saving):
        watched.simulation.run(5)
    # 50 / (1 + 2 + 7) = 5 events for each vertex, though c has only 0.5 to do. Needed: 10 * (1 + 2) + 1 * 7 = 37 < 50.
    assert usual.processed("f") == pytest.approx([5] * 5)
    assert usual.throughput.per_s("c", 5) == pytest.approx(5)
    assert saving.throughput.per_s("c", 5) == pytest.approx(10)


def test_weights_shift_instructions() -> None:
    query = chain(producer("p", 10), consumer("c", ipe=9e6))
    watched = Watched(query, mips=99, scheduling=lambda _: ProportionalToIpe({"p": 2.0}))
    watched.simulation.run(1)
    # Parts 2*1 and 1*9 of 99: 18 and 81 million instructions, for up to 18 and 9 events.
    assert watched.processed("p") == pytest.approx([10])
    assert watched.processed("c") == pytest.approx([9])


def test_an_operator_of_several_ticks_sends_fractions() -> None:
    watched = Watched(chain(producer("p", RecordedRates([0.5], [1])), operator("f", ipe=5e6), consumer("c")), mips=7)
    watched.simulation.run(5)
    assert watched.processed("f") == pytest.approx([1.0])
    slow = Watched(chain(producer("p", RecordedRates([0.5], [1])), operator("f", ipe=5e6), consumer("c")), mips=1.4)
    slow.simulation.run(5)
    assert len(slow.processed("c")) == 5
    assert slow.processed("c")[0] == pytest.approx(0.2 * 0.2 / 0.2)


# -------------------------------------------------------------------------------------------------------- back-pressure


def test_pressure_reaches_the_generator_which_discards() -> None:
    query = chain(
        producer("p", 10, queue_events=30), operator("f", queue_events=20), consumer("c", ipe=10e6, queue_events=5)
    )
    watched = Watched(query, mips=24)  # 2 events a tick at each vertex
    weighted = Watched(query, mips=320, scheduling=lambda _: ProportionalToIpe({"p": 100, "f": 100, "c": 2}))
    for simulation in (watched.simulation, weighted.simulation):
        for _ in range(200):
            simulation.tick()
            assert simulation.vertices["f"].queued_events <= 20 + 1e-9
            assert simulation.vertices["c"].queued_events <= 5 + 1e-9
        first = simulation.vertices["p"]
        assert isinstance(first, RunningProducer)
        assert first.queued_events <= 30 + 1e-9
        assert first.discarded_events > 0


def test_a_window_without_room_for_its_output_takes_no_input() -> None:
    query = chain(
        producer("p", 10),
        window("w", window_s=2, advance_s=2, function=lambda _: 8.0, queue_events=15),
        consumer("c", ipe=90e6, queue_events=3),
    )
    watched = Watched(query, mips=92, scheduling=lambda _: ProportionalToIpe({"p": 100, "w": 100}))
    watched.simulation.run(60)
    assert watched.simulation.vertices["c"].queued_events <= 3 + 1e-9
    assert watched.simulation.vertices["w"].queued_events <= 15 + 1e-9
    assert watched.simulation.vertices["p"].queued_events > 100


GRAPHS = {
    "chain": [("p", "a"), ("a", "b"), ("b", "c")],
    "diamond": [("p", "a"), ("p", "b"), ("a", "d"), ("b", "d"), ("d", "c")],
    "two producers": [("p", "a"), ("r", "a"), ("a", "c")],
}


@settings(max_examples=60, deadline=None)
@given(
    graph=st.sampled_from(sorted(GRAPHS)),
    rates=st.lists(st.floats(0, 50), min_size=2, max_size=2),
    queue=st.none() | st.floats(1, 40),
    mips=st.floats(1, 400),
    ipe=st.lists(st.sampled_from([1e5, 1e6, 4e6]), min_size=6, max_size=6),
    strategy=st.sampled_from([WorkConserving, DynamicShares, ProportionalToIpe]),
    elsewhere=st.sets(st.sampled_from("abc")),
)
def test_every_event_is_somewhere(
    graph: str,
    rates: list[float],
    queue: float | None,
    mips: float,
    ipe: list[float],
    strategy: Callable[[], Any],
    elsewhere: set[str],
) -> None:
    edges = [Edge(*ends) for ends in GRAPHS[graph]]
    names = sorted({name for ends in GRAPHS[graph] for name in ends})
    others: Callable[..., Any] = operator
    makers: dict[str, Callable[..., Any]] = {"p": producer, "r": producer, "c": consumer}
    made = {
        name: makers.get(name, others)(name, ipe=ipe[at], queue_events=None if name in "pr" else queue)
        for at, name in enumerate(names)
    }
    generators: list[Generator] = [ConstantRate(rate) for rate in rates]
    for name, generator in zip("pr", generators, strict=True):
        if name in made:
            made[name] = producer(name, generator, ipe=made[name].ipe)
    query = QueryGraph("q", list(made.values()), edges)
    watched = Watched(query, mips=mips, elsewhere=tuple(elsewhere), scheduling=lambda _: strategy())
    simulation = watched.simulation
    for _ in range(12):
        simulation.tick()
        if queue is not None:
            assert all(
                queued.count <= queue + 1e-6
                for name in names
                if name not in "pr"
                for queued in simulation.vertices[name].queues.values()
            )
    produced = dict.fromkeys(query.named(type(made["p"])), 0.0)
    for name in produced:
        first = simulation.vertices[name]
        assert isinstance(first, RunningProducer)
        produced[name] = first.generated_events - first.queued_events
        assert sum(watched.processed(name)) == pytest.approx(produced[name], abs=1e-6)
    sent = sum(e.events for e in watched.log.entries if e.happened == "sent")
    received = sum(e.events for e in watched.log.entries if e.happened == "received")
    left = sum(simulation.vertices[name].queued_events for name in names if name not in "pr") + sent - received
    per_event = 2 if graph == "diamond" else 1
    consumed = sum(watched.processed("c"))
    assert consumed + left == pytest.approx(per_event * sum(produced.values()), abs=1e-6)
    # All edges pass everything, so the events behind what was consumed are as many as were consumed (eq. 7-10).
    assert watched.throughput.per_s("c", 12) * 12 == pytest.approx(consumed / per_event, abs=1e-6)


def test_warm_up_can_be_left_out() -> None:
    query = chain(producer("p", 6), consumer("c"))
    late, late_throughput = Latency(since_s=2.5), Throughput([query], since_s=2.5)
    simulation = Simulation(
        [query], [SimulatedVm("a", 8)], {"p": "a", "c": "a"}, interval_s=1, calculators=[late, late_throughput]
    )
    simulation.run(3)
    assert late.latency_s("c") == pytest.approx(1.5)  # the third tick of a chain that falls behind
    assert late_throughput.per_s("c", 3) == pytest.approx(4 / 0.5)


# ------------------------------------------------------------------------------------- what is left of a share


def bounded(strategy: Callable[[], Any]) -> Watched:
    """A producer with more events than the queue of ``f`` holds, and a consumer that needs more than its share."""
    edges = [Edge("p", "f"), Edge("f", "c", 10.0)]
    query = QueryGraph("q", [producer("p", 1000), operator("f", queue_events=50), consumer("c")], edges)
    return Watched(query, mips=600, scheduling=lambda _: strategy())


@pytest.mark.parametrize("strategy", [WorkConserving, DynamicShares])
def test_a_vertex_before_a_full_queue_leaves_instructions_to_others(strategy: Callable[[], Any]) -> None:
    watched = bounded(strategy)
    watched.simulation.run(10)
    # 50 events a tick fit into f's queue: 50 + 50 + 500 million instructions, which are all that there are.
    assert sum(watched.processed("c")) == pytest.approx(500 * 10, rel=0.01)
    assert watched.simulation.vertices["p"].instructions_needed == pytest.approx(50e6)


def test_a_join_needs_only_what_its_output_has_room_for() -> None:
    joined = RunningJoin(join("j", window_s=1.0, reduction=1.0), ["p", "r"], [Output("c", 1.0, room=25.0)])
    for queue in joined.queues.values():
        queue.add(EventSet(10.0))
    # 5 of either side make the 25 tuples for which there is room.
    assert joined.instructions_needed == pytest.approx(10e6)


def two_queries(scheduling: Callable[[], Any]) -> list[float]:
    """Events a second of a costly query (100 events a second, 9 million instructions) and of a cheap one on one VM."""
    queries = [
        QueryGraph(name, [producer(f"{name}p", 100), consumer(f"{name}c", ipe=ipe)], [Edge(f"{name}p", f"{name}c")])
        for name, ipe in (("a", 9e6), ("b", 1e6))
    ]
    vms, throughput = [SimulatedVm("v", 120)], Throughput(queries)
    placement = SpreadQueries().place(queries, vms)
    Simulation(
        queries, vms, placement, interval_s=1.0, scheduling=lambda _: scheduling(), calculators=[throughput]
    ).run(10)  # fmt: skip
    return [throughput.per_s(f"{name}c", 10) for name in "ab"]


def test_queries_have_equal_parts_whatever_their_vertices_cost() -> None:
    # 60 million instructions for either: 6 events of 10 million, and 30 of 2 million.
    assert two_queries(ProportionalToIpe) == pytest.approx([6, 30])


def test_dynamic_shares_give_what_is_left_by_weight_and_never_more_than_the_share() -> None:
    query = chain(producer("p", 10), operator("f", ipe=2e6), consumer("c", ipe=7e6), selectivity=0.1)
    watched = Watched(query, mips=50, scheduling=lambda _: DynamicShares())
    watched.simulation.run(5)
    assert watched.throughput.per_s("c", 5) == pytest.approx(10, rel=0.01)
    # p and f want more than there is. In each round they get up to 5 and 10 million, until 50 are gone.
    overload = chain(producer("p", 1000), operator("f", ipe=2e6), consumer("c", ipe=7e6), selectivity=0.0)
    fair, greedy = (
        Watched(overload, mips=50, scheduling=lambda _, of=of: of()) for of in (DynamicShares, WorkConserving)
    )
    for one in (fair, greedy):
        one.simulation.run(1)
    assert [sum(fair.processed(name)) for name in "pf"] == pytest.approx([20, 15])
    assert [sum(greedy.processed(name)) for name in "pf"] == pytest.approx([40, 5])
