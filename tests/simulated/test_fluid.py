"""Fluid worlds: leaving out scheduler calls changes nothing, and the fluid behaves like queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engines.simulated.boot import MeasuredTimes
from engines.simulated.generators import Bursts, ConstantRate, Generator, Poisson
from gateway.core.decide.profiler import Profiler
from gateway.core.decide.scheduler import Scheduler
from gateway.simulate.fluid.hosts import Lanes, divided, rest_of_others_s
from gateway.simulate.fluid.lanes import Flow
from gateway.simulate.fluid.measures import LaneMeasures
from gateway.simulate.fluid.options import FluidOptions, FromGenerators
from gateway.simulate.fluid.waiting import WaitingEvents
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Faults, QueryOptions, WorldOptions
from gateway.simulate.runs.world import World
from policies.signals import HOME, Command, Event, SlotEnded
from tests.simulated.fluid_worlds import again, day

# ------------------------------------------------------------------------------------------------------ worlds


def test_a_vm_is_drained_when_the_cloud_says_in_time_that_it_takes_it() -> None:
    def played(notice_s: float) -> tuple[list[tuple[float, str]], float]:
        world = FluidWorld(replace(day(), faults=Faults(reclaim_per_s=1 / 30, notice_s=notice_s)))
        outcome = world.run()
        came = again(day()).load.block(0, day().slots).sum()
        assert outcome.queries[0].events == pytest.approx(came, rel=1e-9)
        return [(one.at_s, one.command.cause.why) for one in outcome.commands], outcome.missed

    told, late = played(30.0)
    surprised, very_late = played(0.0)
    assert any("reclaims vm-1" in why for _, why in told)
    assert not any("was lost" in why for _, why in told)
    assert any("was lost" in why for _, why in surprised)
    assert late <= very_late + 0.05


def test_a_vm_boots_for_as_long_as_was_measured() -> None:
    options = day()
    (site,) = options.sites
    machines = replace(site.machines, boot=MeasuredTimes((17.0,)))
    outcome = FluidWorld(replace(options, sites=(replace(site, machines=machines),))).run()
    (started_s, vm, _), (ready_s, of, what) = outcome.vm_marks[:2]
    assert (of, what, ready_s - started_s) == (vm, "ready", 17.0)


def rates_told(options: FluidOptions) -> list[Mapping[str, float]]:
    """What the scheduler receives about each slot in which it is called."""
    rates: list[Mapping[str, float]] = []

    class Watched(Scheduler):
        def handle(self, event: Event) -> list[Command]:
            if isinstance(event, SlotEnded):
                rates.append(event.queries[0].rates)
            return super().handle(event)

    FluidWorld(replace(options, make_scheduler=Watched)).run()
    return rates


@pytest.mark.parametrize("vm_speed", [0.5, 1.0, 2.0])
def test_a_vm_serves_at_its_own_speed(vm_speed: float) -> None:
    (site,) = (options := day()).sites
    machines = replace(site.machines, vm_speed=vm_speed)
    rates = rates_told(replace(options, sites=(replace(site, machines=machines),)))
    assert np.median([of["vm-1"] / of[HOME] for of in rates if "vm-1" in of]) == pytest.approx(vm_speed, rel=0.02)


def test_machines_are_as_fast_in_each_slot_as_they_are_said_to_be() -> None:
    def served(slot: int) -> tuple[float, float]:
        return (400.0 if slot % 100 < 50 else 800.0), 1000.0

    rates = rates_told(replace(day(), served=served, every_slot=True))
    assert [rates[slot][HOME] for slot in (49, 99, 949, 999)] == pytest.approx([400, 800, 400, 800], rel=0.02)
    assert {round(of["vm-1"]) for of in rates if "vm-1" in of} == {1000}


def test_every_event_is_completed_once() -> None:
    options = day()
    world = FluidWorld(options)
    outcome = world.run()
    came = again(options).load.block(0, options.slots).sum()
    assert outcome.queries[0].events == pytest.approx(came, rel=1e-9)
    assert world.tally.events.sum() == pytest.approx(came, rel=1e-9)
    assert 0 <= outcome.missed <= 1


SEVERAL_RUNS = {"run_s": 0.1, "batch_s": 0.06, "further_run_s": 0.02, "batch_runs": 8, "event_s": 1 / 1500}


@pytest.mark.parametrize(("vm_speed", "costs"), [(0.5, {}), (1.0, {}), (3.0, {}), (1.0, SEVERAL_RUNS)])
def test_a_fluid_world_is_near_one_of_runs(vm_speed: float, costs: dict[str, Any]) -> None:
    """The same gateway with single runs: as many VMs, and latencies of the same size."""
    fluid = day()
    (site,) = fluid.sites
    machines = replace(site.machines, vm_speed=vm_speed)
    site = replace(site, machines=machines, queries=(replace(site.queries[0], **costs),))

    def load() -> Generator:
        return Bursts(ConstantRate(300.0), every_s=1000.0, for_s=120.0, times=4.0)

    query = QueryOptions(settings=site.scheduler.queries[0], load=load(), **costs)
    runs = World(
        WorldOptions(seed=1, scheduler=site.scheduler, queries=(query,), machines=site.machines, load_s=1000.0)
    ).run()
    slots = FromGenerators([Poisson(load(), np.random.default_rng(1))], 1.0)
    outcome = FluidWorld(replace(fluid, sites=(site,), load=slots)).run()
    assert outcome.vms == runs.vms
    assert outcome.queries[0].events == pytest.approx(runs.queries[0].events, rel=0.02)
    assert outcome.mean_s == pytest.approx(runs.queries[0].mean_s, rel=0.35)
    assert outcome.usd == pytest.approx(runs.usd, rel=0.5)


def test_runs_are_as_large_as_what_came_while_they_were_open() -> None:
    (site,) = day().sites
    (query,) = site.queries
    flow, nowhere = Flow([site], np.array([0])), np.zeros(0, dtype=np.intp)

    def run_after(came: float) -> float:
        flow.step(np.array([came]), nowhere)
        return float(flow.slot.run_events[0])

    each = query.run_s / site.scheduler.slot_s
    assert run_after(100.0) == pytest.approx(100 * each)
    assert run_after(400.0) == pytest.approx(400 * each), "nothing of the smaller runs is left"
    far_behind = 20 * site.machines.events_per_s * site.scheduler.slot_s
    large = min(far_behind * each, query.run_events)
    assert run_after(far_behind) == pytest.approx(large)
    assert run_after(0.0) == pytest.approx(large), "what waits was cut when it came"
    assert run_after(100.0) == pytest.approx(large), "smaller runs came later: they are not served yet"
    while flow.waiting.events[0] + flow.home.kept[0] > 0:
        last = run_after(0.0)
    assert 100 * each < last < 0.7 * large, "the smaller runs are served last"


def test_a_run_waits_for_half_of_what_its_host_serves_of_other_queries() -> None:
    host, run_s = np.array([0, 0, 1]), np.array([0.5, 0.2, 0.3])
    work_s = np.array([0.8, 0.2, 1.0])
    one = rest_of_others_s(work_s, run_s, host, np.array([1.0, 1.0]), np.array([1, 1]))
    assert one == pytest.approx([0.2 * 0.2 / 2, 0.8 * 0.5 / 2, 0.0])
    # Both cores are busy for half of the time, and the first of them is free after a third of a run.
    two = rest_of_others_s(work_s, run_s, host, np.array([2.0, 2.0]), np.array([2, 2]))
    assert two[1] == pytest.approx(0.4 * 0.5 * 0.5 / 3)


def test_what_is_out_of_order_comes_home_in_whole_runs() -> None:
    (site,) = day().sites
    (query,) = site.queries
    disordered = replace(site, queries=(replace(query, disordered=0.1),))
    flow, in_cloud = Flow([disordered], np.array([0])), np.array([0])
    flow.shares[0, 0] = 1.0
    at_home = []
    for _ in range(200):
        flow.step(np.array([100.0]), in_cloud)
        at_home.append(float(flow.slot.home_dispatched[0]))
    run = 100.0 * query.run_s / site.scheduler.slot_s
    came_home = [events for events in at_home if events > 0]
    assert sum(at_home) == pytest.approx(0.1 * 200 * 100, abs=run)
    assert min(came_home) >= run - 1e-6
    assert len(came_home) < 100, "most slots see nothing at home"


# ---------------------------------------------------------------------------------------------------------- fluid

AMOUNTS = st.floats(0.0, 50.0).map(lambda x: round(x, 2))


@settings(max_examples=80, deadline=None)
@given(slots=st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=120))
def test_what_waits_leaves_in_the_order_of_its_coming(slots: list[tuple[float, float]]) -> None:
    waiting, queue = WaitingEvents(1, 1.0), deque[list[float]]()
    for now, (came, wanted) in enumerate(slots):
        each = 1.0 / (1 + now % 7)
        waiting.add(now, np.array([came]), np.array([came * each]))
        queue.append([now + 0.5, came, each])
        take = min(wanted, float(waiting.events[0]))
        ahead = waiting.ahead(np.array([take]))
        mean_s, _, taken_runs = waiting.take(np.array([take]))
        left, moment, runs = take, 0.0, 0.0
        while left > 1e-9 and queue:
            got = min(left, queue[0][1])
            moment, left, queue[0][1] = moment + got * queue[0][0], left - got, queue[0][1] - got
            runs += got * queue[0][2]
            if queue[0][1] <= 1e-9:
                queue.popleft()
        if take > 1e-6:
            assert float(mean_s[0]) == pytest.approx((moment) / take, abs=0.01)
        assert float(ahead[0]) == pytest.approx(runs, abs=1e-6)
        assert float(taken_runs[0]) == pytest.approx(runs, abs=1e-6)
        assert float(waiting.events[0]) == pytest.approx(sum(left for _, left, _ in queue), abs=1e-6)
        assert float(waiting.runs[0]) == pytest.approx(sum(left * each for _, left, each in queue), abs=1e-6)


def test_a_history_without_room_takes_what_is_older_for_its_beginning() -> None:
    waiting = WaitingEvents(1, 1.0, most_bytes=20 * 10)
    for now in range(30):
        waiting.add(now, np.array([1.0]), np.array([0.5]))
        waiting.take(np.array([0.0]))
    assert float(waiting.events[0]) == 30
    assert 18 <= float(waiting.since_s(np.arange(1))[0]) <= 23
    waiting.put_back(np.array([0]), np.array([5.0]), np.array([2.5]), np.array([2.0]))
    waiting.add(30, np.array([0.0]), np.array([0.0]))
    mean_s, _, runs = waiting.take(np.array([35.0]))
    assert float(runs[0]) == pytest.approx(17.5)
    assert float(waiting.events[0]) == 0
    assert float(mean_s[0]) >= 20


@settings(max_examples=80, deadline=None)
@given(
    lanes=st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 3), st.integers(0, 2)), min_size=1, max_size=12),
    capacity=st.lists(st.floats(0.1, 6), min_size=3, max_size=3),
)
def test_hosts_are_divided_in_turn(lanes: list[tuple[float, float, int]], capacity: list[float]) -> None:
    demand, weight, host = (np.array(values) for values in zip(*lanes, strict=True))
    got = divided(demand, weight, host, np.array(capacity))
    for at in range(3):
        here = host == at
        if not here.any():
            continue
        wants, turns, gets = demand[here], weight[here], got[here]
        assert (gets <= wants + 1e-9).all()
        assert gets.sum() == pytest.approx(min(wants.sum(), capacity[at]), abs=1e-6)
        # Whoever does not get all it wants gets no less for its weight than anybody else.
        level = (gets / turns)[gets < wants - 1e-6]
        if len(level):
            assert (gets / turns <= level.min() + 1e-6).all()


def test_a_lane_is_first_come_first_out() -> None:
    lanes = Lanes((1,))
    put, runs, mean_s, first_s = np.array([10.0]), np.array([5.0]), np.array([5.0]), np.array([0.0])
    served = lanes.pass_through(put, runs, mean_s, first_s, np.array([4.0]))
    assert (served.runs[0], lanes.runs[0]) == pytest.approx((2.0, 3.0))
    assert (served.events[0], served.came_s[0], lanes.kept[0]) == pytest.approx((4.0, 2.0, 6.0))
    assert lanes.mean_s[0] == pytest.approx(7.0)
    assert lanes.since_s(np.arange(1))[0] == pytest.approx(4.0)
    served = lanes.pass_through(np.zeros(1), np.zeros(1), np.array([11.0]), np.array([11.0]), np.array([100.0]))
    assert (served.events[0], served.came_s[0], lanes.kept[0]) == pytest.approx((6.0, 7.0, 0.0))


@settings(max_examples=30, deadline=None)
@given(runs=st.lists(st.lists(st.integers(1, 50), max_size=3), min_size=1, max_size=20))
def test_flows_and_rates_are_those_of_the_profiler(runs: list[list[int]]) -> None:
    profiler, arrays = Profiler(1.0, {"q": "mean"}), LaneMeasures((1,), 1.0)
    seq = 0
    for slot, of_slot in enumerate(runs):
        done = 0
        for events in of_slot:
            now_s = slot + 0.5
            profiler.dispatched("q", lane=HOME, events=events, raw_bytes=0, sent_bytes=0)
            profiler.completed(
                "q", last_seq=seq + events - 1, events=events, lane=HOME, mean_arrival_s=now_s, completed_s=now_s,
                batch_id=seq, batch_s=0.01 * events + 0.1,
            )  # fmt: skip
            seq += events
            done += events
        (seen,) = profiler.end_slot(slot + 1.0)
        busy_s = 0.01 * done + 0.1 * len(of_slot)
        arrays.end_slot(slice(None), np.zeros(1), np.array([float(done)]), np.array([busy_s]))
        assert float(arrays.rate(slice(None))[0]) == pytest.approx(seen.rates.get(HOME, 0.0))
        flow = float(arrays.completed_per_s[0])
        assert (float(arrays.open[0]) / flow if flow > 0 else None) == pytest.approx(seen.home_lane_s)
