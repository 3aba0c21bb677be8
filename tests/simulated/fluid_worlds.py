"""Fluid worlds for the simulator's tests: drawn at random, or made for one purpose."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import strategies as st

from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.fluid.options import FluidOptions, FluidQuery, FluidSite, LoadSource, Spikes
from gateway.simulate.options import Faults, Machines
from gateway.simulate.sharing import QuotaOptions
from gateway.simulate.sizes import VmSize
from policies.arrays import Array
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.quota.requests import QuotaLimits
from policies.switching.query import Mode, QuerySettings
from policies.switching.switching import SwitchingSettings

TWO_VMS = QuotaOptions(
    limits=QuotaLimits(max_vms=2, usd_per_day=0.05, usd_a_portion=0.004), unanswered=0.05, lease_s=30.0, silent_s=60.0
)


@st.composite
def sites(draw: st.DrawFn, at: int) -> FluidSite:
    qos_s = draw(st.sampled_from([1.0, 2.0]))
    count = draw(st.integers(1, 3))
    queries = tuple(
        QuerySettings(
            name=f"s{at}q{q}",
            switching=SwitchingSettings(1.2 * qos_s, qos_s, 0.5 * qos_s, 1000, draw(st.sampled_from([0.0, 1.0, 3.0]))),
            latency_qos_s=qos_s,
            mode=draw(st.sampled_from(["auto", "auto", "query", "off"])),
            share=draw(st.sampled_from([None, None, 0.0, 0.3])),
            switchable=draw(st.sampled_from([True, True, True, False])),
        )
        for q in range(count)
    )
    period_s = draw(st.sampled_from([20.0, 60.0]))
    terms = BillingTerms(period_s, period_s, 0.36, draw(st.sampled_from([0.0, 0.09])))
    usd = terms.time_usd(period_s)
    periods = draw(st.sampled_from([None, 0.5, 2.5, 6.0]))
    scheduler = SchedulerSettings(
        queries=queries,
        max_vms=draw(st.sampled_from([0, 1, 1, 2])),
        billing=terms,
        budget=Budget(
            None if periods is None else periods * usd,
            draw(st.sampled_from([None, None, 2 * usd])),
            draw(st.sampled_from([None, None, 3 * usd])),
        ),
        boot_s=draw(st.sampled_from([2.0, 10.0])),
        slot_s=1.0,
    )
    shapes = tuple(
        FluidQuery(
            name=query.name,
            statistic=draw(st.sampled_from(["mean", "p95"])),
            sent_part=draw(st.sampled_from([0.1, 1.0])),
        )
        for query in queries
    )
    machines = Machines(
        events_per_s=1000.0,
        batch_s=0.02,
        vm_speed=draw(st.sampled_from([1.0, 0.4])),
        sizes=draw(st.sampled_from([(), (VmSize("large", 0.36), VmSize("small", 0.12))])),
    )
    return FluidSite(scheduler=scheduler, queries=shapes, machines=machines)


@st.composite
def worlds(draw: st.DrawFn) -> FluidOptions:
    chosen = tuple(draw(sites(at)) for at in range(draw(st.integers(1, 3))))
    count = sum(len(site.queries) for site in chosen)
    seed = draw(st.integers(0, 1000))
    load = Spikes(
        np.full(count, draw(st.sampled_from([150.0, 400.0]))),
        1.0,
        seed=seed,
        day=0.0,
        every_s=120.0,
        for_s=draw(st.sampled_from([10.0, 40.0])),
        times=draw(st.sampled_from([2.0, 6.0])),
        together=np.zeros(count, dtype=np.intp),
    )
    spot = Faults(failed_launch=0.3, reclaim_per_s=0.01, sold_out={"large": 0.5})
    faults = draw(st.sampled_from([Faults(), spot, replace(spot, notice_s=20.0)]))
    quota = draw(st.sampled_from([None, None, TWO_VMS]))
    if quota is not None:
        chosen = tuple(replace(site, scheduler=replace(site.scheduler, quota=True)) for site in chosen)
    return FluidOptions(
        seed=seed,
        sites=chosen,
        load=load,
        slots=260,
        rest_slots=120,
        faults=faults,
        quota=quota,
        begins_wall_s=86_300.0,  # midnight comes
    )


def again(options: FluidOptions, **changes: object) -> FluidOptions:
    """The same world with its load from the beginning."""
    load = options.load
    if not isinstance(load, Spikes):
        return replace(options, **changes)  # type: ignore[arg-type]
    return replace(options, load=load.restarted(), **changes)  # type: ignore[arg-type]


def day(seed: int = 1) -> FluidOptions:
    """A gateway whose home falls behind in one spike."""
    query = QuerySettings(name="q", switching=SwitchingSettings(2.4, 2.0, 1.0, 1000, 1.0), latency_qos_s=2.0)
    scheduler = SchedulerSettings(
        queries=(query,), max_vms=1, billing=BillingTerms(60.0, 60.0, 0.36, 0.09), budget=Budget(5.0), boot_s=5.0,
        slot_s=1.0,
    )  # fmt: skip
    load = Spikes(
        np.full(1, 300.0), 1.0, seed=seed, day=0.0, every_s=1000.0, for_s=120.0, times=4.0,
        together=np.zeros(1, dtype=np.intp),
    )  # fmt: skip
    site = FluidSite(scheduler=scheduler, queries=(FluidQuery(name="q"),), machines=Machines(events_per_s=900.0))
    return FluidOptions(seed=seed, sites=(site,), load=load, slots=1000)


class Steps:
    """A load of one query that the test specifies slot by slot.

    Args:
        at: for each part in turn, the slot until which it lasts, and how many events come in each slot of it; the last
            part lasts for ever.
        bump: this many events come instead in slots 12 to 15 of each 20, after the last part has begun.
    """

    def __init__(self, *at: tuple[float, float], bump: float | None = None) -> None:
        self._at, self._bump = at, bump

    def block(self, first_slot: int, slots: int) -> Array:
        """See ``LoadSource``."""
        return np.array([[self._events(slot)] for slot in range(first_slot, first_slot + slots)])

    def _events(self, slot: int) -> float:
        part = next((at for at, (until, _) in enumerate(self._at) if slot < until), len(self._at) - 1)
        if self._bump is not None and part == len(self._at) - 1 and 12 <= slot % 20 < 16:
            return self._bump
        return self._at[part][1]


def one_query(
    load: LoadSource, slots: int, *, terms: BillingTerms, usd: float | None, keep_s: float = 1.0, mode: Mode = "auto"
) -> FluidOptions:
    """A gateway of one query and one VM that boots for 5 s; home serves 810 events a second."""
    switching = SwitchingSettings(2.4, 2.0, keep_s, 1000, 1.0)
    query = QuerySettings(name="q", switching=switching, latency_qos_s=2.0, mode=mode)
    scheduler = SchedulerSettings(
        queries=(query,), max_vms=1, billing=terms, budget=Budget(usd), boot_s=5.0, slot_s=1.0
    )
    site = FluidSite(scheduler=scheduler, queries=(FluidQuery(name="q"),), machines=Machines(events_per_s=900.0))
    return FluidOptions(seed=1, sites=(site,), load=load, slots=slots)
