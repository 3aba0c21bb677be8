"""Several queries on one fleet: loads at the same time add up, others do not, and one query alone is unaffected."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import policies.demand
from engines.simulated.boot import LogNormal
from engines.simulated.generators import RecordedRates
from gateway.simulate.options import Machines, QueryOptions, WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.world import World
from policies.advice import Advice, Load
from policies.money.billing import BillingTerms
from policies.planning.planner import PlannerOptions
from policies.planning.queueing import QueueingOptions
from policies.signals import QuerySlot
from policies.together import Overlap, together
from tests.policies.policy_data import query_settings, scheduler_settings

LOADS = st.floats(0.0, 8.0).map(lambda load: round(load, 3))


@st.composite
def said(draw: st.DrawFn) -> Advice:
    """The answers of a policy that wants enough VMs for its load, at times more, or leaves it to equation 1."""
    ahead, later = draw(LOADS), draw(LOADS)
    load = Load(ahead, max(ahead, later), 1.0)
    if draw(st.integers(0, 4)) == 0:
        return Advice(why="not yet", load=load)
    wanted = max(0, math.ceil(ahead - 1.0)) + draw(st.integers(0, 1))
    return Advice(wanted=wanted, kept=max(wanted, math.ceil(load.most - 1.0)), why="mine", load=load)


def asked(advice: Mapping[str, Advice], **changes: object) -> Mapping[str, Advice]:
    settings: dict[str, object] = {"own_parts": {}, "at_home": (), "max_vms": 99, **changes}
    return together(advice, **settings)  # type: ignore[arg-type]


def wants(load: float, wanted: int, most: float | None = None) -> Advice:
    return Advice(wanted=wanted, kept=wanted, why="mine", load=Load(load, load if most is None else most, 1.0))


@given(said(), st.integers(0, 5))
def test_one_query_gets_what_its_policy_says(advice: Advice, static: int) -> None:
    assert asked({"q": advice}, max_vms=9)["q"] is advice
    beside = Advice(wanted=static, kept=static, why="always")
    assert asked({"q": advice, "floor": beside}) == {"q": advice, "floor": beside}


@given(said(), st.floats(0.0, 0.049))
def test_a_query_that_does_next_to_nothing_changes_nothing(advice: Advice, load: float) -> None:
    """Another VM is wanted for a twentieth of its work, not for less; here at the edge of a whole VM."""
    alone = replace(advice, load=Load(float(round(advice.load.ahead)), 8.0, 1.0)) if advice.load else advice
    small = wants(load, 0)
    got = asked({"q": alone, "small": small})
    assert got["small"] is small
    assert got["q"].wanted == alone.wanted


@given(st.lists(said(), min_size=2, max_size=5))
def test_the_fleet_carries_the_sum_and_has_no_vm_too_many(advice: list[Advice]) -> None:
    before = {f"q{at}": one for at, one in enumerate(advice)}
    after = asked(before)
    for name, one in before.items():
        assert after[name].load == one.load
        if one.wanted is None:
            assert after[name] == one
        else:
            assert (after[name].wanted or 0) >= one.wanted
            assert after[name].kept >= max(one.kept, after[name].wanted or 0)
    planned = [one for one in advice if one.wanted is not None]
    if len(planned) < len(advice) or not planned:
        return
    most = max(one.wanted or 0 for one in after.values())
    total = math.fsum(one.load.ahead for one in advice if one.load)
    if any(one.load and one.load.most >= 0.05 for one in advice):
        assert 1.0 + most >= total - 0.05 - 1e-9
    own = max(one.wanted or 0 for one in planned)
    assert most == own or 1.0 + most - 1 < total


def test_bursts_that_coincide_are_added_and_home_counts_once() -> None:
    both = asked({"a": wants(1.6, 1), "b": wants(1.6, 1)})
    assert [one.wanted for one in both.values()] == [3, 3]
    assert "all queries together keep 3.2 engines busy, home has the capacity of 1: 3 VMs" in both["a"].why
    assert both["a"].why.startswith("mine; ")


def test_a_burst_beside_a_quiet_query_is_not_the_sum_of_the_greatest() -> None:
    for a, b in ((1.7, 0.2), (0.2, 1.7)):
        before = {"a": wants(a, 1 if a > 1 else 0), "b": wants(b, 1 if b > 1 else 0)}
        assert max(one.wanted or 0 for one in asked(before).values()) == 1


def test_what_is_kept_is_what_is_needed_until_a_new_vm_could_serve() -> None:
    before = {"a": replace(wants(0.4, 0, most=1.6), kept=1), "b": replace(wants(0.4, 0, most=1.4), kept=1)}
    after = asked(before)
    assert [(one.wanted, one.kept) for one in after.values()] == [(0, 2), (0, 2)]


def test_no_more_is_wanted_than_may_live() -> None:
    assert asked({"a": wants(5.0, 4), "b": wants(5.0, 4)}, max_vms=6)["a"].wanted == 6


def test_a_query_that_stays_home_takes_up_home_only_and_asks_for_nothing() -> None:
    before = {"a": wants(1.6, 1), "b": wants(5.0, 4)}
    after = asked(before, at_home=["b"])
    assert after["b"] is before["b"]
    assert after["a"].wanted == 2


def test_late_events_that_a_policy_takes_for_cheaper_than_a_vm_stay_so() -> None:
    before = {"a": wants(1.9, 0), "b": wants(0.02, 0)}
    assert asked(before) == before


def test_while_nobody_plans_equation_1_decides() -> None:
    before = {name: Advice(why="not yet", load=Load(2.0, 2.0, 1.0)) for name in ("a", "b")}
    assert asked(before) == before


# -------------------------------------------------------------------------------------------------------------- overlap


def slot(query: str, **busy_s: float) -> QuerySlot:
    return QuerySlot(query=query, latency_s=0.0, busy_s=busy_s)


@given(st.lists(st.floats(0.01, 1.0), min_size=20, max_size=40))
def test_a_query_alone_has_all_its_time_to_itself(busy: list[float]) -> None:
    overlap = Overlap(1.0)
    for busy_s in busy:
        overlap.observe([slot("q", home=busy_s)])
    assert overlap.own_part("q") == pytest.approx(1.0)


def test_what_was_not_watched_for_some_slots_adds_nothing() -> None:
    overlap = Overlap(1.0)
    overlap.observe([slot("a", home=0.9), slot("b", home=0.9)])
    assert overlap.own_part("a") == overlap.own_part("never seen") == 0.0


def test_batches_longer_than_slots_are_no_overlap() -> None:
    overlap = Overlap(1.0)
    for at in range(200):
        overlap.observe([slot("q", home=5.0 if at % 5 == 4 else 0.0)])
    assert overlap.own_part("q") == pytest.approx(1.0)


def test_two_queries_that_take_turns_have_their_times_to_themselves() -> None:
    overlap = Overlap(1.0)
    for _ in range(100):
        overlap.observe([slot("a", home=0.6), slot("b", home=0.4)])
    assert overlap.own_part("a") == pytest.approx(1.0)


def test_two_queries_side_by_side_all_the_time_have_half_of_it_each() -> None:
    overlap = Overlap(1.0)
    for _ in range(400):
        overlap.observe([slot("a", home=1.0), slot("b", home=1.0)])
    assert overlap.own_part("a") == pytest.approx(0.5, abs=0.02)
    # So home, which carries both, is not taken for too small.
    parts = {name: overlap.own_part(name) for name in "ab"}
    before = {name: wants(1.0, 0) for name in "ab"}
    assert asked(before)["a"].wanted == 1
    assert asked(before, own_parts=parts)["a"].wanted == 0


# --------------------------------------------------------------------------------------------------------------- worlds

CYCLE_S = 120.0
BURST_S = 50.0
LOAD_S = 300.0
LOW, HIGH = 200.0, 1400.0
SEASONAL = QueueingOptions(window_s=2.0, forecast="seasonal", cycle_s=CYCLE_S, history=120)


def bursts(phase_s: float, low: float = LOW, high: float = HIGH) -> RecordedRates:
    at_s = np.arange(0.0, LOAD_S, 0.1)
    rates = np.where((at_s + CYCLE_S - phase_s) % CYCLE_S < BURST_S, high, low)
    return RecordedRates(at_s.tolist(), (rates * 0.1).tolist())


class Lived:
    """A world of queries; home does 1,000 events a second in each of ``cores`` batches at a time, and so does a VM."""

    def __init__(
        self,
        *loads: RecordedRates,
        policy: PlannerOptions | QueueingOptions = SEASONAL,
        cores: int = 1,
        load_s: float = LOAD_S,
    ) -> None:
        settings = [query_settings(f"q{at}", share=None, policy=policy) for at in range(len(loads))]
        world = World(
            WorldOptions(
                seed=1,
                scheduler=scheduler_settings(
                    *settings, max_vms=4, boot_s=5.0, billing=BillingTerms(20.0, 20.0, 0.36, 0.0)
                ),
                queries=tuple(
                    QueryOptions(settings=query, load=load, poisson=False, run_s=0.25, event_bytes=200)
                    for query, load in zip(settings, loads, strict=True)
                ),
                machines=Machines(events_per_s=1000.0, batch_s=0.01, boot=LogNormal(0.01), cores=cores),
                load_s=load_s,
            ),
            keep_trace=True,
        )
        self.outcome: WorldOutcome = world.run()
        self.lines = world.trace.lines

    def starts_s(self, from_s: float, to_s: float) -> list[float]:
        """When VMs were launched between two moments."""
        starts_s = [float(line.split()[0]) for line in self.lines if re.match(r"\S+ StartVm\(", line)]
        return [at_s for at_s in starts_s if from_s <= at_s < to_s]

    @property
    def mean_s(self) -> float:
        events = sum(query.events for query in self.outcome.queries)
        return sum(query.mean_s * query.events for query in self.outcome.queries) / events


@pytest.fixture
def each_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each policy's own answer counts, as if nothing were added up."""
    monkeypatch.setattr(policies.demand, "together", lambda advice, *_, **__: advice)


@pytest.fixture(scope="module")
def coinciding() -> Lived:
    return Lived(bursts(20.0), bursts(20.0))


def test_bursts_that_coincide_have_enough_vms(coinciding: Lived) -> None:
    """2 x 1,400 events a second at 1,000 per engine, home included: two VMs, ahead of each burst of a known cycle."""
    for begin_s in (20.0 + CYCLE_S, 20.0 + 2 * CYCLE_S):
        assert len(coinciding.starts_s(begin_s - 8.0, begin_s)) == 2
    assert any("StartVm" in line and "all queries together" in line for line in coinciding.lines)


@pytest.mark.usefixtures("each_alone")
def test_without_the_sum_they_are_later(coinciding: Lived) -> None:
    alone = Lived(bursts(20.0), bursts(20.0))
    assert coinciding.mean_s < 0.8 * alone.mean_s
    assert coinciding.outcome.usd < 1.2 * alone.outcome.usd


def test_bursts_that_never_coincide_cost_what_each_alone_wants(request: pytest.FixtureRequest) -> None:
    apart = Lived(bursts(20.0), bursts(20.0 + CYCLE_S / 2))
    request.getfixturevalue("each_alone")
    alone = Lived(bursts(20.0), bursts(20.0 + CYCLE_S / 2))
    assert apart.outcome.vms <= alone.outcome.vms
    assert apart.outcome.usd <= alone.outcome.usd + 1e-9
    assert apart.mean_s < 2.0  # the latency that is promised


def test_engines_that_work_at_several_queries_at_a_time_are_not_taken_for_too_small(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Home is busy with each of two queries for 0.58 of the time, at times with both at once, and has room for more."""

    def vms() -> int:
        steady = bursts(0.0, low=550.0, high=550.0)
        return Lived(steady, steady, policy=QueueingOptions(window_s=2.0), cores=2, load_s=80.0).outcome.vms

    assert vms() == 0
    monkeypatch.setattr(Overlap, "own_part", lambda *_: 1.0)
    assert vms() > 0


@pytest.mark.parametrize(
    "policy",
    [SEASONAL, QueueingOptions(window_s=2.0), PlannerOptions(window_s=4.0, windows=8, history=60, cycles_s=(CYCLE_S,))],
    ids=["seasonal", "naive", "planner"],
)
def test_one_query_lives_as_if_nothing_were_added_up(
    policy: PlannerOptions | QueueingOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = Lived(bursts(20.0), policy=policy)
    monkeypatch.setattr(policies.demand, "together", lambda advice, *_, **__: advice)
    assert Lived(bursts(20.0), policy=policy).lines == now.lines
    assert now.outcome.vms > 0
