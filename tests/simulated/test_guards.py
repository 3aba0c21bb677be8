"""Leaving out scheduler calls changes nothing, and a guard that forgot something would be detected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from gateway.core.decide.scheduler import Scheduler
from gateway.simulate.fluid import brief, guards
from gateway.simulate.fluid import world as fluid_world
from gateway.simulate.fluid.options import FluidOptions
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from policies.arrays import Array, IntArray
from policies.money.billing import BillingTerms
from policies.signals import QuerySlot
from tests.simulated.fluid_worlds import Steps, again, day, one_query, worlds


def without_ids(outcome: FluidOutcome) -> list[object]:
    """Commands without the ids of their events, since these count calls."""
    return [
        (one.at_s, one.site, type(one.command).__name__, getattr(one.command, "vm", ""), one.command.cause.why)
        for one in outcome.commands
    ]


def compared(options: FluidOptions) -> tuple[FluidOutcome, FluidOutcome]:
    """The same world with and without guards; without them every slot has calls, with complete records."""
    few, all_ = (FluidWorld(again(options, every_slot=every)).run() for every in (False, True))
    return few, all_


def changed(few: FluidOutcome, all_: FluidOutcome) -> bool:
    """Whether leaving out calls changed any command, or the outcome in any bit."""
    same_commands = without_ids(few) == without_ids(all_)
    return not same_commands or replace(few, calls=0, commands=()) != replace(all_, calls=0, commands=())


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(options=worlds())
def test_calls_that_are_left_out_change_nothing(options: FluidOptions) -> None:
    few, all_ = compared(options)
    assert without_ids(few) == without_ids(all_)
    assert replace(few, calls=0, commands=()) == replace(all_, calls=0, commands=())
    assert few.calls <= all_.calls == all_.slots * len(options.sites)


def test_most_calls_are_left_out_and_one_seed_is_one_world() -> None:
    outcome = FluidWorld(day()).run()
    assert outcome.vms >= 1
    assert outcome.queries[0].cloud_events > 0
    assert outcome.calls < 0.5 * outcome.slots
    assert FluidWorld(day()).run() == outcome
    assert FluidWorld(day(seed=2)).run() != outcome


# ----------------------------------------------------------------------------------------- guards broken on purpose

CHEAP = BillingTerms(60.0, 60.0, 0.36, 0.09)
SHORT = BillingTerms(20.0, 20.0, 3.6, 20.0)


def a_second_burst_meets_an_idle_vm() -> FluidOptions:
    load = Steps((20, 300.0), (40, 1500.0), (105, 300.0), (115, 1500.0), (120, 300.0))
    return one_query(load, 200, terms=CHEAP, usd=None)


def an_idle_vm_uses_up_the_budget() -> FluidOptions:
    """A VM is kept, idle, until in one of its periods there is no money for what a bump of input could cost."""
    load = Steps((20, 300.0), (40, 1500.0), (60, 300.0), bump=600.0)
    return one_query(load, 700, keep_s=0.1, terms=SHORT, usd=0.6315)


def a_query_moves_whole() -> FluidOptions:
    load = Steps((20, 300.0), (80, 1500.0), (120, 300.0))
    return one_query(load, 200, mode="query", terms=CHEAP, usd=None)


def a_link_carries_less_than_its_share() -> FluidOptions:
    load = Steps((20, 300.0), (60, 1500.0), (120, 300.0))
    options = one_query(load, 200, terms=CHEAP, usd=None)
    (site,) = options.sites
    return replace(options, sites=(replace(site, machines=replace(site.machines, link_bytes_per_s=50_000.0)),))


def forget(broken: Callable[[guards.Guards, int], None]) -> type[guards.Guards]:
    """Guards that forget something each time they have examined a scheduler."""

    class Broken(guards.Guards):
        def called(
            self, site: int, scheduler: Scheduler, at_s: float, input_bytes_per_s: Array, *, lanes_empty: bool
        ) -> None:
            super().called(site, scheduler, at_s, input_bytes_per_s, lanes_empty=lanes_empty)
            broken(self, site)

    return Broken


class NoRest(guards.Guards):
    """Guards that do not wait until a scheduler comes to rest."""

    def fired(self, at_s: float, latency_s: Array, input_bytes_per_s: Array) -> IntArray:
        self._hot[:] = False
        return super().fired(at_s, latency_s, input_bytes_per_s)


def _no_starts(broken: guards.Guards, site: int) -> None:
    broken._may_start[site] = False


def _no_sends(broken: guards.Guards, site: int) -> None:
    broken._idle[site] = False


def _no_periods(broken: guards.Guards, site: int) -> None:
    broken._due_s[site] = np.inf


def _no_money(broken: guards.Guards, site: int) -> None:
    broken._money[site] = False


def _no_busy_vms(broken: guards.Guards, site: int) -> None:
    broken._always[site] = False


@pytest.mark.parametrize(
    ("broken", "world"),
    [
        pytest.param(forget(_no_starts), day, id="L >= L_s without a VM"),
        pytest.param(forget(_no_sends), a_second_burst_meets_an_idle_vm, id="L >= L_d with an idle VM"),
        pytest.param(forget(_no_periods), a_second_burst_meets_an_idle_vm, id="the end of a period"),
        pytest.param(forget(_no_money), an_idle_vm_uses_up_the_budget, id="a larger reservation"),
        pytest.param(forget(_no_busy_vms), day, id="a VM that is not idle"),
        pytest.param(NoRest, day, id="the slot after"),
    ],
)
def test_a_guard_that_forgets_something_is_found_out(
    broken: type[guards.Guards], world: Callable[[], FluidOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not changed(*compared(world()))
    monkeypatch.setattr(guards, "Guards", broken)
    assert changed(*compared(world()))


@pytest.mark.parametrize(
    ("field", "world"),
    [
        ("home_lane_s", day),
        ("cloud_lane_s", day),
        ("rates", a_query_moves_whole),
        ("no_credit", day),
        ("dispatched_events", a_link_carries_less_than_its_share),
        ("raw_bytes", an_idle_vm_uses_up_the_budget),
        ("sent_bytes", an_idle_vm_uses_up_the_budget),
        ("input_bytes_per_s", an_idle_vm_uses_up_the_budget),
    ],
)
def test_a_brief_record_that_leaves_out_too_much_is_found_out(
    field: str, world: Callable[[], FluidOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = QuerySlot(query="q", latency_s=0.0)

    def too_brief(*seen: object) -> tuple[QuerySlot, ...]:
        slots = brief.brief_slots(*seen)  # type: ignore[arg-type]
        return tuple(replace(slot, **{field: getattr(bare, field)}) for slot in slots)

    monkeypatch.setattr(fluid_world, "brief_slots", too_brief)
    assert changed(*compared(world()))
