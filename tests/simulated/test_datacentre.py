"""Clouds under CEPSim's queries: data centres, hosts, VMs with MIPS, and how long VMs boot."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.simulated.boot import BootTimes, Evenly, LogNormal, MeasuredTimes
from engines.simulated.datacentre import Datacentre, NoRoomError, SimulatedCloud, SimulatedHost
from engines.simulated.metrics import Latency, Log
from engines.simulated.placement import Link, SimulatedVm
from engines.simulated.query import Edge, QueryGraph
from engines.simulated.simulation import Simulation
from tests.simulated.cepsim_data import MILLION, consumer, producer

RACK, WAN = Link(0.5), Link(3.0, 1e6)


def cloud(**changes: object) -> SimulatedCloud:
    """Two hosts in Oslo, one in Rome."""
    oslo = Datacentre("oslo", (SimulatedHost("o1", 3000.0), SimulatedHost("o2", 2000.0)), RACK)
    return SimulatedCloud([oslo, Datacentre("rome", (SimulatedHost("r1", 2500.0),))], between=WAN, **changes)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ hosts


def test_vms_go_where_most_is_free_and_no_host_promises_more_than_it_has() -> None:
    there = cloud()
    for name, mips in (("a", 1500.0), ("b", 1000.0), ("c", 1500.0)):
        there.start(name, mips, "oslo")
    assert [there.host(name) for name in "abc"] == ["o1", "o2", "o1"]
    with pytest.raises(NoRoomError, match="1001 MIPS"):
        there.start("d", 1001.0, "oslo")
    assert there.start("d", 1000.0, "oslo").mips == 1000.0
    there.end("a", at_s=5.0)
    assert there.start("e", 1500.0, "oslo", at_s=5.0).name == "e"
    assert there.host("e") == "o1"
    assert [vm.ends_s for vm in there.vms] == [5.0, math.inf, math.inf, math.inf, math.inf]


@given(asked=st.lists(st.tuples(st.floats(1, 3000), st.booleans()), max_size=30))
def test_no_host_is_ever_overbooked(asked: list[tuple[float, bool]]) -> None:
    there, promised, alive = cloud(), {"o1": 0.0, "o2": 0.0}, list[SimulatedVm]()
    for number, (mips, ends) in enumerate(asked):
        if ends and alive:
            gone = alive.pop(0)
            there.end(gone.name, float(number))
            promised[there.host(gone.name)] -= gone.mips
        try:
            vm = there.start(f"vm{number}", mips, "oslo")
        except NoRoomError:
            assert promised["o1"] + mips > 3000 - 1e-6
            assert promised["o2"] + mips > 2000 - 1e-6
            continue
        alive.append(vm)
        promised[there.host(vm.name)] += mips
        assert promised["o1"] <= 3000 + 1e-6
        assert promised["o2"] <= 2000 + 1e-6


def test_another_strategy_may_choose_the_host() -> None:
    class LastFit:
        def host(self, mips: float, free_mips: Mapping[str, float]) -> str | None:
            return next((name for name in reversed(list(free_mips)) if free_mips[name] >= mips), None)

    there = cloud(allocation=LastFit())
    there.start("a", 1500.0, "oslo")
    assert there.host("a") == "o2"


def test_networks_are_those_between_the_places() -> None:
    there = cloud()
    for name, mips, centre in (("a", 1500.0, "oslo"), ("b", 1500.0, "oslo"), ("c", 1000.0, "oslo"), ("d", 1.0, "rome")):
        there.start(name, mips, centre)
    assert [there.host(name) for name in "abcd"] == ["o1", "o2", "o1", "r1"]
    assert (there.links["a", "c"], there.links["a", "b"], there.links["d", "a"]) == (Link(), RACK, WAN)
    assert len(there.links) == 12


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        SimulatedCloud([Datacentre("a", (SimulatedHost("h", 1.0),)), Datacentre("b", (SimulatedHost("h", 1.0),))])
    with pytest.raises(ValueError, match="MIPS"):
        SimulatedHost("h", 0.0)
    there = cloud()
    there.start("a", 1.0, "oslo")
    with pytest.raises(ValueError, match="already exists"):
        there.start("a", 1.0, "oslo")
    with pytest.raises(ValueError, match="data centre"):
        there.start("b", 1.0, "bern")
    there.end("a", 1.0)
    with pytest.raises(ValueError, match="ended at 1 s"):
        there.end("a", 2.0)


# ---------------------------------------------------------------------------------------------------------- queries


def played(there: SimulatedCloud, for_s: float, out: str = "b") -> tuple[Log, Latency]:
    """Ten events a second from VM a to VM ``out``, in ticks of 1 s."""
    query = QueryGraph("q", [producer("in"), consumer("out")], [Edge("in", "out", event_bytes=1000)])
    log, latency = Log(), Latency()
    placement = {"in": "a", "out": out}
    Simulation(
        [query], there.vms, placement, interval_s=1.0, links=there.links, calculators=[log, latency]
    ).run(for_s)  # fmt: skip
    return log, latency


def processed(log: Log, vertex: str) -> dict[float, float]:
    return {float(e.tick): e.events for e in log.entries if e.vertex == vertex and e.happened == "processed"}


def test_a_query_runs_on_the_vms_of_a_cloud_and_waits_for_its_networks() -> None:
    near, far = cloud(), cloud()
    for there, centre in ((near, "oslo"), (far, "rome")):
        there.start("a", 2500.0, "oslo")
        there.start("b", 1500.0, centre)
    assert near.host("b") == "o2"
    ((_, near_s), (_, far_s)) = played(near, 60), played(far, 60)
    # What is sent at 0.5 s comes at 1 s in the rack, and b processes it when the next tick begins. It comes to Rome
    # 3.01 s later, in the middle of a tick.
    assert near_s.latency_s("out") == pytest.approx(0.5 + 10 / 1500)
    assert far_s.latency_s("out") == pytest.approx(3.01)


def test_a_vm_executes_nothing_before_it_has_booted_and_after_it_ended() -> None:
    there = cloud(boot=Evenly(1.0, 1.0), boot_s=4.5)
    there.start("a", 100.0, "oslo", at_s=-4.5)
    there.start("b", 100.0, "oslo")
    log, _ = played(there, 8)
    # In the tick that ends at 5 s it works for half a second, enough for the events of four ticks.
    assert processed(log, "out") == pytest.approx({5.0: 40.0, 6.0: 10.0, 7.0: 10.0, 8.0: 10.0})
    assert min(processed(log, "in")) == 1.0
    there.end("b", at_s=6.0)
    log, _ = played(there, 8)
    assert max(processed(log, "out")) == 6.0


def test_a_tick_in_which_a_vm_comes_up_counts_in_part() -> None:
    there = cloud(boot=Evenly(1.0, 1.0), boot_s=2.75)
    there.start("a", 8.0, "oslo")
    query = QueryGraph("q", [producer("in"), consumer("out")], [Edge("in", "out")])
    simulation = Simulation([query], there.vms, dict.fromkeys(query.vertices, "a"), interval_s=1.0)
    simulation.run(3.0)
    # Half of 8 MIPS for a quarter of a second are one million instructions: one event.
    assert simulation.vertices["in"].queued_events == pytest.approx(30 - 0.25 * 8 * MILLION / 2 / MILLION)


# ------------------------------------------------------------------------------------------------------- boot times


def drawn(times: BootTimes, boot_s: float) -> list[float]:
    random_state = random.Random(1)
    return [times.draw(random_state, boot_s) for _ in range(4000)]


def test_boot_times_have_the_moments_that_they_declare() -> None:
    seen_s = drawn(LogNormal(0.5), 40.0)
    logs = [math.log(time_s / 40.0) for time_s in seen_s]
    assert statistics.median(seen_s) == pytest.approx(40.0, rel=0.04)
    assert statistics.stdev(logs) == pytest.approx(0.5, rel=0.04)
    seen_s = drawn(Evenly(0.5, 2.0), 40.0)
    assert 20.0 <= min(seen_s) <= 20.5
    assert 79.5 <= max(seen_s) <= 80.0
    assert statistics.mean(seen_s) == pytest.approx(50.0, rel=0.02)
    seen_s = drawn(MeasuredTimes((31.0, 31.0, 90.0)), 40.0)
    assert set(seen_s) == {31.0, 90.0}
    assert seen_s.count(90.0) == pytest.approx(4000 / 3, rel=0.06)


@pytest.mark.parametrize(
    "wrong",
    [lambda: LogNormal(-1.0), lambda: Evenly(2.0, 1.0), lambda: MeasuredTimes(()), lambda: MeasuredTimes((-1.0,))],
)
def test_times_that_cannot_be_are_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"spread|between|boot times"):
        wrong()  # type: ignore[operator]


def test_one_seed_boots_alike() -> None:
    ready_s = [
        [there.start(name, 100.0, "oslo").ready_s for name in "abc"]
        for there in (cloud(boot_s=10.0, seed=1), cloud(boot_s=10.0, seed=1), cloud(boot_s=10.0, seed=2))
    ]
    assert ready_s[0] == ready_s[1] != ready_s[2]


# --------------------------------------------------------------------------------------------------------- failures


@given(
    marks=st.lists(st.floats(0, 20), max_size=12, unique=True),
    alive=st.tuples(st.floats(0, 10), st.floats(10, 20)),
    span=st.tuples(st.floats(0, 20), st.floats(0, 20)),
)
def test_a_vm_works_while_it_is_there_and_not_down(
    marks: list[float], alive: tuple[float, float], span: tuple[float, float]
) -> None:
    times_s = sorted(marks)
    down_s = tuple(zip(times_s[::2], times_s[1::2], strict=False))
    vm = SimulatedVm("v", 1.0, *alive, down_s)
    from_s, to_s = sorted(span)
    cuts = sorted({from_s, to_s, *(at for at in (*alive, *times_s) if from_s < at < to_s)})
    middles = [((a + b) / 2, b - a) for a, b in pairwise(cuts)]
    works_s = sum(
        lasts_s
        for at_s, lasts_s in middles
        if alive[0] <= at_s < alive[1] and not any(fails_s <= at_s < back_s for fails_s, back_s in down_s)
    )
    assert vm.works_s(from_s, to_s) == pytest.approx(works_s, abs=1e-9)
    assert vm.fails(from_s, to_s) is any(
        from_s <= fails_s < to_s and alive[0] <= fails_s < alive[1] for fails_s, _ in down_s
    )


def test_failures_that_overlap_count_once_and_cores_are_counted() -> None:
    there = SimulatedCloud([Datacentre("oslo", (SimulatedHost("o1", 1000.0, 4), SimulatedHost("o2", 2000.0)))])
    there.start("a", 1000.0, "oslo", cores=3)
    assert there.fail("a", [(5.0, 9.0), (1.0, 2.0)]).down_s == ((1.0, 2.0), (5.0, 9.0))
    assert there.fail("a", [(8.0, 12.0)]).down_s == ((1.0, 2.0), (5.0, 12.0))
    assert (there.host("a"), there.vms[0].mips) == ("o1", 3000.0)
    with pytest.raises(NoRoomError, match="2000 MIPS free for b"):
        there.start("b", 1000.0, "oslo", cores=2, host="o1")
    there.start("b", 1500.0, "oslo")
    assert there.host("b") == "o2"
    with pytest.raises(NoRoomError, match="cores of 2500 MIPS"):
        there.start("c", 2500.0, "oslo")
    with pytest.raises(ValueError, match="no host o3"):
        there.start("c", 1.0, "oslo", host="o3")
    with pytest.raises(ValueError, match="follow each other"):
        SimulatedVm("v", 1.0, down_s=((2.0, 1.0),))
