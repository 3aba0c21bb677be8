"""From a burst to the decision, and to enough capacity: rules of other autoscalers, all in the same virtual world."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from engines.simulated.generators import RateSteps
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.comparing.contest import fluid_world
from gateway.simulate.fluid.outcomes import FluidOutcome
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Machines, QueryOptions, WorldOptions
from policies import choose
from policies.lookahead.policy import LookaheadOptions
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.planning.plain import StaticOptions
from policies.signals import StartVm
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from suite.deciding.scalers import MOST_VMS, PEERS
from suite.row import Row
from suite.turns import OURS, Goal, Sample

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

HOME_PER_S, BOOT_S, PERIOD_S, SLOT_S, TARGET_S, SEED = 1_000.0, 30.0, 60.0, 0.5, 2.0, 4
CALM_S, BURST_S, AFTER_S = 1_200.0, 600.0, 600.0
CALM_PER_S, BURST_PER_S = 500.0, 2_500.0
DECIDED, ENOUGH, STEPS, LATE, USD = (
    "s, burst to decision",
    "s, burst to enough VMs",
    "launch decisions",
    "% of events late",
    "USD",
)
NEVER_S = BURST_S + AFTER_S
"""Instead of a time, if it did not happen while the load lasted."""


def _world(policy: PolicyOptions | None) -> WorldOptions:
    switching = SwitchingSettings(1.2 * TARGET_S, TARGET_S, TARGET_S / 2, 1_000_000, 1.0)
    settings = QuerySettings(name="burst", switching=switching, latency_qos_s=TARGET_S, mode="auto", policy=policy)
    load = RateSteps((CALM_S, BURST_S, AFTER_S), (CALM_PER_S, BURST_PER_S, CALM_PER_S))
    scheduler = SchedulerSettings(
        queries=(settings,),
        max_vms=MOST_VMS,
        billing=BillingTerms(PERIOD_S, PERIOD_S, 0.36, 0.09),
        budget=Budget(),
        boot_s=BOOT_S,
        slot_s=SLOT_S,
    )
    query = QueryOptions(settings=settings, load=load, poisson=True, event_s=1 / HOME_PER_S)
    return WorldOptions(
        seed=SEED,
        scheduler=scheduler,
        queries=(query,),
        machines=Machines(events_per_s=HOME_PER_S, link_bytes_per_s=1e8),
        load_s=CALM_S + BURST_S + AFTER_S,
    )


def _sample(outcome: FluidOutcome) -> Sample:
    starts = [each.at_s for each in outcome.commands if isinstance(each.command, StartVm) and each.at_s >= CALM_S]
    enough = math.ceil(BURST_PER_S / HOME_PER_S) - 1
    serving, enough_s = 0, NEVER_S
    for at_s, _, what in outcome.vm_marks:
        serving += {"ready": 1, "gone": -1}.get(what, 0)
        if serving >= enough and at_s >= CALM_S:
            enough_s = min(enough_s, at_s - CALM_S)
    return Sample(
        {
            DECIDED: starts[0] - CALM_S if starts else NEVER_S,
            ENOUGH: enough_s,
            STEPS: float(len({at_s for at_s in starts if at_s < CALM_S + BURST_S})),
            LATE: 100 * outcome.missed,
            USD: outcome.usd,
        }
    )


def _ours(policy: PolicyOptions | None) -> Callable[[], Sample]:
    return lambda: _sample(FluidWorld(fluid_world(_world(policy))).run())


def _peer(name: str) -> Callable[[], Sample]:
    def play() -> Sample:
        # This process has no other policy: the peer decides in place of a fixed number of VMs.
        vars(choose)["_policy"] = lambda _, site: PEERS[name](site.slot_s)
        return _sample(FluidWorld(fluid_world(_world(StaticOptions(0)))).run())

    return play


ROW = Row(
    name="burst",
    title="from a burst to enough VMs, in virtual time",
    sides={OURS: _ours(LookaheadOptions()), "ESM's equation 1": _ours(None), **{name: _peer(name) for name in PEERS}},
    goals=(
        Goal(DECIDED, None, 2.0, at_least=False),
        Goal(ENOUGH, None, BOOT_S + 5.0, at_least=False),
        Goal(STEPS, None, 2.0, at_least=False),
    ),
    note=(
        "After 20 minutes at half of home's rate, events come at 2.5 times that rate for 10 minutes. A VM boots for "
        "30 s (median). The first column is `policy: lookahead`. Peers have their defaults; 1,200 s means never."
    ),
    turns_most=1,  # virtual time: each turn finds the same
)
