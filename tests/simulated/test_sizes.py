"""Which size a simulated launch gets, and what it costs."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.simulated.boot import LogNormal
from engines.simulated.generators import ConstantRate
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.comparing.contest import fluid_world
from gateway.simulate.comparing.optimum import blocks_of
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Faults, Machines, QueryOptions, WorldOptions
from gateway.simulate.runs.outcomes import WorldOutcome
from gateway.simulate.runs.world import World
from gateway.simulate.sizes import ANY_SIZE, SizeLaunches, VmSize, least_usd_per_hour, picked, together
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

SIZES = (VmSize("large", 0.2), VmSize("medium"), VmSize("small", 0.1))
TERMS = BillingTerms(period_s=30.0, minimum_s=30.0, usd_per_hour=0.36, usd_per_gb_sent=0.0)

sold = st.dictionaries(st.sampled_from(["large", "medium", "small"]), st.sampled_from([0.0, 0.5, 1.0]))


@given(sold, st.integers(0, 100))
def test_a_launch_gets_the_first_size_that_is_not_sold_out(sold_out: Mapping[str, float], seed: int) -> None:
    size, setbacks = picked(SIZES, sold_out, random.Random(seed))
    at = len(SIZES) if size is None else SIZES.index(size)
    assert setbacks == tuple(f"{before.name}: sold out" for before in SIZES[:at])
    assert all(sold_out.get(before.name, 0.0) > 0 for before in SIZES[:at])
    if size is not None:
        assert sold_out.get(size.name, 0.0) < 1
        assert TERMS.at_price(size.usd_per_hour).usd_per_hour >= least_usd_per_hour(SIZES, sold_out, TERMS)


def test_sizes_are_sold_out_as_often_as_is_said() -> None:
    draw = random.Random(2)
    got = [picked(SIZES, {"large": 0.3, "medium": 0.5}, draw).size for _ in range(4000)]
    parts = [got.count(size) / len(got) for size in SIZES]
    assert parts == pytest.approx([0.7, 0.15, 0.15], abs=0.03)


def test_a_cloud_without_sizes_draws_nothing() -> None:
    draw = random.Random(1)
    before = draw.getstate()
    assert picked((), {}, draw).size is ANY_SIZE
    assert picked(SIZES, {"medium": 1.0}, draw).size is SIZES[0]
    assert draw.getstate() == before


def test_no_later_size_is_cheaper_than_one_that_is_always_there() -> None:
    prices = [least_usd_per_hour(SIZES, sold_out, TERMS) for sold_out in ({}, {"large": 0.1}, {"medium": 0.1})]
    assert prices == [0.2, 0.2, 0.2]
    assert least_usd_per_hour(SIZES, {"large": 0.1, "medium": 0.1}, TERMS) == 0.1
    assert least_usd_per_hour((), {}, TERMS) == 0.36


def test_vms_of_several_gateways_are_added() -> None:
    sites = ((SizeLaunches("a", 0.1, 1), SizeLaunches("b", 0.2, 2)), (SizeLaunches("b", 0.2, 3),))
    assert together(sites) == (SizeLaunches("a", 0.1, 1), SizeLaunches("b", 0.2, 5))


def world(sold_out: Mapping[str, float], every_s: float = math.inf) -> WorldOptions:
    """A query that needs one VM, and VMs that are reclaimed about so often."""
    settings = QuerySettings(
        name="q", switching=SwitchingSettings(2.4, 2.0, 1.0, 1000, 1.0), latency_qos_s=2.0, mode="auto"
    )
    return WorldOptions(
        seed=3,
        scheduler=SchedulerSettings(
            queries=(settings,), max_vms=2, billing=TERMS, budget=Budget(10.0), boot_s=5.0, slot_s=1.0
        ),
        queries=(QueryOptions(settings=settings, load=ConstantRate(150.0), poisson=False),),
        machines=Machines(events_per_s=110.0, batch_s=0.02, boot=LogNormal(0.0), sizes=SIZES),
        faults=Faults(sold_out=sold_out, reclaim_per_s=1 / every_s, notice_s=5.0),
        load_s=150.0,
    )


def played(model: str, sold_out: Mapping[str, float], every_s: float = math.inf) -> WorldOutcome | FluidOutcome:
    options = world(sold_out, every_s)
    return FluidWorld(fluid_world(options)).run() if model == "fluid" else World(options).run()


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_vms_cost_what_their_sizes_cost(model: str) -> None:
    for sold_out, usd_per_hour in (({}, 0.2), ({"large": 1.0}, 0.36), ({"large": 1.0, "medium": 1.0}, 0.1)):
        outcome = played(model, sold_out)
        launched = [one for one in outcome.sizes if one.vms]
        assert [one.usd_per_hour for one in launched] == [usd_per_hour]
        assert launched[0].vms == outcome.vms >= 1
        # Whole billing periods, each at the price of this size.
        periods = outcome.usd / (usd_per_hour * TERMS.period_s / 3600)
        assert periods == pytest.approx(round(periods))
        assert periods >= outcome.vms


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_if_every_size_is_sold_out_no_vm_is_launched(model: str) -> None:
    outcome = played(model, {"large": 1.0, "medium": 1.0, "small": 1.0})
    assert outcome.usd == 0
    assert outcome.faults.launches_failed > 0
    assert [one.vms for one in outcome.sizes] == [0, 0, 0]


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_a_price_list_is_mixed_if_a_size_is_sometimes_sold_out(model: str) -> None:
    outcome = played(model, {"large": 0.5}, every_s=40.0)
    large, medium, small = outcome.sizes
    assert min(large.vms, medium.vms) > 0
    assert small.vms == 0
    assert large.vms + medium.vms == outcome.vms


def test_the_optimum_pays_for_the_cheapest_size_that_can_be_had() -> None:
    prices = [blocks_of(world(sold_out), 30.0).window_usd for sold_out in ({}, {"large": 0.1, "medium": 0.1})]
    assert prices == pytest.approx([0.2 * 30 / 3600, 0.1 * 30 / 3600])
    alone = replace(world({}), machines=Machines())
    assert blocks_of(alone, 30.0).window_usd == pytest.approx(0.36 * 30 / 3600)
