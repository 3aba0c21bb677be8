"""Worlds drawn at random: one seed decides everything."""

from __future__ import annotations

import random
from dataclasses import replace

from engines.simulated.boot import LogNormal
from engines.simulated.generators import Bursts, ConstantRate
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.query.flow.delivery import HELD_BYTES_MAX
from gateway.simulate.options import Faults, KeyLoad, Machines, QueryOptions, WorldOptions
from infra.link.credit import CREDIT_BYTES
from policies.announcement import Announcement, Occurrence
from policies.failures.overdue import Patience
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.switching.query import Mode, QuerySettings
from policies.switching.switching import SwitchingSettings

MOVING_WORLDS, MOVING_REST = 10, 5
"""A query moves with its state in the worlds whose seeds leave this rest, divided by this number."""
DIVIDED_REST = 8
"""The same for a query that is divided by its keys, whose parts move."""
_BAD_ROWS_WORLDS = 0.125
_ANNOUNCED_WORLDS = 0.25
_AUTO_WORLDS = 0.1


def drawn(seed: int, *, load_s: float = 120.0, moves: bool = True) -> WorldOptions:
    """Return a faulty world of one to three queries; without ``moves``, none of them moves with its state."""
    draw = random.Random(f"world {seed}")  # no secret
    machines = Machines(
        events_per_s=draw.choice([500.0, 2000.0]),
        batch_s=draw.uniform(0.01, 0.2),
        cores=draw.choice([1, 1, 2]),
        link_delay_s=draw.uniform(0.001, 0.3),
        link_bytes_per_s=draw.choice([2e5, 1e6, 1e7]),
        boot=LogNormal(draw.choice([0.1, 0.5])),
    )
    max_vms = draw.choice([0, 1, 2, 2, 3])
    queries = tuple(_drawn_query(draw, f"q{at + 1}", machines) for at in range(draw.choice([1, 1, 2, 3])))
    queries = tuple(replace(query, settings=_with_policy(query.settings, seed, max_vms)) for query in queries)
    queries = tuple(replace(query, settings=_with_announcements(query.settings, seed)) for query in queries)
    period_s = draw.choice([20.0, 30.0, 60.0])
    queries = tuple(_tightened(query, seed) for query in queries)
    terms = BillingTerms(period_s, draw.choice([0.0, period_s, 2 * period_s]), 0.36, draw.choice([0.0, 0.09]))
    if moves and seed % MOVING_WORLDS == MOVING_REST:
        queries, max_vms = (_with_state(queries[0], seed, machines, terms.first_block_s), *queries[1:]), max(1, max_vms)
    if moves and seed % MOVING_WORLDS == DIVIDED_REST:
        queries, max_vms = (divided(queries[0], seed, machines, terms.first_block_s), *queries[1:]), max(1, max_vms)
    periods = draw.choice([None, None, 0.5, 2.5, 8.0])
    machines = replace(machines, vm_speed=(1.0, 0.5, 2.0)[seed // 3 % 3])
    return WorldOptions(
        seed=seed,
        scheduler=SchedulerSettings(
            queries=tuple(query.settings for query in queries),
            max_vms=max_vms,
            billing=terms,
            budget=Budget(None if periods is None else periods * terms.time_usd(terms.first_block_s)),
            boot_s=draw.choice([2.0, 5.0, 12.0]),
            slot_s=draw.choice([0.5, 1.0, 2.0]),
            sheds=seed % 3 == 0,
        ),
        queries=queries,
        machines=machines,
        faults=_with_bad_rows(_drawn_faults(draw), seed),
        patience=Patience(least_s=4.0, unknown_s=20.0),
        load_s=load_s,
    )


def _drawn_query(draw: random.Random, name: str, machines: Machines) -> QueryOptions:
    mode: Mode = draw.choice(["auto", "auto", "data", "query", "off"])
    qos_s = draw.choice([1.0, 2.0])
    settings = QuerySettings(
        name=name,
        switching=SwitchingSettings(
            start_vm_above_s=1.2 * qos_s,
            send_above_s=qos_s,
            keep_vm_above_s=0.5 * qos_s,
            keep_vm_bytes=draw.choice([1000, 1_000_000]),
            tolerance_s=draw.choice([0.0, 1.0, 3.0]),
        ),
        latency_qos_s=qos_s,
        mode=mode,
        share=draw.choice([None, None, 0.1, 0.5]),
        switchable=draw.random() < 0.9,
    )
    base_per_s = machines.events_per_s * draw.uniform(0.05, 0.4)
    every_s = draw.uniform(20, 60)
    load = Bursts(
        ConstantRate(base_per_s), every_s=every_s, for_s=every_s * draw.uniform(0, 0.5), times=draw.uniform(1, 8)
    )
    return QueryOptions(
        settings=settings,
        load=load,
        run_s=draw.uniform(0.2, 0.8),
        run_events=draw.choice([300, 2000]),
        event_bytes=draw.choice([100, 2000]),
        sent_part=draw.uniform(0.1, 1.0),
        flush_s=draw.choice([None, 2.0, 30.0]),
        ordered=draw.random() < 0.85,
        disordered=draw.choice([0.0, 0.0, 0.1]),
    )


_AMPLE_BYTES = 1 << 40


def _tightened(query: QueryOptions, seed: int) -> QueryOptions:
    """Return a query that is stateful, or has little room for sent or held bytes, in some worlds; drawn separately."""
    draw = random.Random(f"tight {seed} {query.settings.name}")  # no secret
    run_bytes = query.run_events * query.event_bytes
    if not query.settings.switchable:
        # A host that runs a batch again needs the whole batch. Here, unlike on Spark, its runs need not be consecutive,
        # so the room for results or credit might admit only some of them.
        return replace(query, stateful=True, credit_bytes=_AMPLE_BYTES, held_bytes_max=_AMPLE_BYTES)
    return replace(
        query,
        credit_bytes=draw.choice([CREDIT_BYTES, CREDIT_BYTES, run_bytes // 2, 2 * run_bytes]),
        held_bytes_max=draw.choice([HELD_BYTES_MAX, HELD_BYTES_MAX, 8 * run_bytes]),
    )


def _with_state(query: QueryOptions, seed: int, machines: Machines, stay_s: float) -> QueryOptions:
    """Return a query that keeps state, and moves with it when its load is high; drawn separately."""
    draw = random.Random(f"state {seed}")  # no secret
    mode: Mode = draw.choice(["auto", "query"])
    settings = replace(query.settings, mode=mode, share=None, switchable=True, pause_most_s=10.0, stay_s=stay_s)
    settings = replace(settings, policy=draw.choice([None, settings.policy]))
    every_s = draw.uniform(20, 60)
    load = Bursts(
        ConstantRate(machines.events_per_s * draw.uniform(0.1, 0.4)),
        every_s=every_s,
        for_s=every_s * draw.uniform(0.2, 0.5),
        times=draw.uniform(2, 8),
    )
    return replace(
        query,
        settings=settings,
        load=load,
        run_events=draw.choice([300, 1000]),
        disordered=0.0,
        stateful=True,
        moves=True,
        state_bytes=draw.choice([10_000, 1_000_000, 10_000_000]),
        killed_at_step=draw.choice([0.0, 0.03, 0.1]),
        killed_at_look=draw.choice([0.0, 0.005, 0.02]),
        credit_bytes=_AMPLE_BYTES,
        held_bytes_max=_AMPLE_BYTES,
    )


def divided(query: QueryOptions, seed: int, machines: Machines, stay_s: float) -> QueryOptions:
    """Return a query that keeps state for keys, and whose parts move when its load is high; drawn separately."""
    draw = random.Random(f"keys {seed}")  # no secret
    query = _with_state(query, seed, machines, stay_s)
    settings = replace(
        query.settings, mode="keys", share=draw.choice([None, None, 0.3, 0.7]), pause_most_s=draw.choice([2.5, 10.0])
    )
    keys = KeyLoad(
        keys=draw.choice([3, 40, 1000]),
        skew=draw.choice([0.0, 0.8, 1.5]),
        hot=draw.choice([0.0, 0.0, 0.4, 0.95]),
        changes_s=draw.choice([0.0, 10.0, 40.0]),
    )
    return replace(
        query,
        settings=settings,
        moves=False,
        parts=draw.choice([2, 3, 4, 6]),
        keys=keys,
        part_stay_s=draw.choice([1.0, 5.0, 20.0]),
    )


def _with_bad_rows(faults: Faults, seed: int) -> Faults:
    """Return other faults in every eighth world: bad rows, and no lost answers, since such a run is never overdue."""
    if random.Random(f"bad rows {seed}").random() >= _BAD_ROWS_WORLDS:  # no secret
        return faults
    return replace(faults, bad_rows=0.05, lost_reply=0.0, hang_per_s=0.0)


def _with_policy(settings: QuerySettings, seed: int, max_vms: int) -> QuerySettings:
    """Return settings with a policy in every second world; drawn separately, so that nothing else changes."""
    from policies.auto.policy import AutoOptions
    from policies.lookahead.policy import LookaheadOptions
    from policies.planning.plain import CpuOptions, StaticOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions

    draw = random.Random(f"policy {seed} {settings.name}")  # no secret
    window_s, cycle_s = draw.choice([2.0, 4.0]), draw.uniform(20, 60)
    policies = (
        PlannerOptions(window_s=window_s, windows=12, history=100, cycles_s=(cycle_s,)),
        QueueingOptions(window_s=window_s, forecast=draw.choice(["naive", "seasonal", "gp"]), cycle_s=cycle_s),
        CpuOptions(start_above=0.7, stop_below=0.5, window_s=window_s),
        StaticOptions(draw.randint(0, max_vms)),
        LookaheadOptions(),
    )
    chosen = draw.choice([None, None, None, *policies, policies[0]])
    if draw.random() >= _AUTO_WORLDS:
        return replace(settings, policy=chosen)
    auto = AutoOptions(
        planner=policies[0],
        queueing=QueueingOptions(window_s=window_s),
        cpu=policies[2],
        switching=settings.switching,
        seed=seed,
    )
    return replace(settings, policy=auto)


def _with_announcements(settings: QuerySettings, seed: int) -> QuerySettings:
    """Return settings with announced load in every fourth world, true or not; drawn separately."""
    draw = random.Random(f"announced {seed} {settings.name}")  # no secret
    if draw.random() >= _ANNOUNCED_WORLDS:
        return settings
    begins_s = [draw.uniform(0, 120) for _ in range(draw.randint(1, 4))]
    times = tuple(Occurrence(each, each + draw.choice([5.0, 20.0, 60.0])) for each in begins_s)
    rate, factor = draw.choice([(None, 2.0), (None, 20.0), (1e3, 1.0), (1e5, 1.0)])
    return replace(settings, announced=(Announcement(name="drawn", occurrences=times, rate=rate, factor=factor),))


def _drawn_faults(draw: random.Random) -> Faults:
    """Return some of the faults; each is absent from half of the worlds, so that none hides another."""

    def some(most: float) -> float:
        return draw.uniform(0, most) if draw.random() < 0.5 else 0.0

    return Faults(
        lost_reply=some(0.05),
        doubled_reply=some(0.1),
        late_reply=some(0.1),
        late_s=draw.choice([1.0, 15.0, 60.0]),
        failed_launch=some(0.6),
        stuck_boot=some(0.2),
        refused_end=some(0.5),
        crash_per_s=some(0.02),
        hang_per_s=some(0.01),
        reclaim_per_s=some(0.02),
        slow_link_per_s=some(0.02),
        clock_step_per_s=some(0.05),
        clock_step_s=draw.choice([0.3, 3.0]),
        notice_s=draw.choice([0.0, 5.0, 30.0]),
    )
