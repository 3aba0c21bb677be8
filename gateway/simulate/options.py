"""The options of a simulated world, and worlds drawn at random: one seed decides everything."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from engines.simulated.boot import BootTimes, LogNormal
from engines.simulated.generators import Bursts, ConstantRate, Generator
from gateway.core.decide.profiler import Statistic
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.core.exchange import ExchangeSettings
from gateway.query.flow.delivery import HELD_BYTES_MAX
from infra.link.credit import CREDIT_BYTES
from policies.failures.overdue import Patience
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.switching.query import Mode, QuerySettings
from policies.switching.switching import SwitchingSettings

WAITING_PART = 0.5
"""About half of a full lane's content is in the running micro-batch; what waits meanwhile is in the next one."""

MOVING_WORLDS, MOVING_REST = 10, 5
"""A query moves with its state in the worlds whose seeds leave this rest, divided by this number."""
_BAD_ROWS_WORLDS = 0.125


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults: probabilities, and rates per second; none by default.

    Attributes:
        lost_reply: an answer never comes.
        doubled_reply: an answer comes twice.
        late_reply: an answer comes up to ``late_s`` late.
        late_s: see ``late_reply``.
        failed_launch: no VM is available.
        stuck_boot: a VM is billed but never ready.
        refused_end: a try to terminate a VM fails; it is retried.
        crash_per_s: an engine host dies.
        hang_per_s: an engine host answers heartbeats only.
        reclaim_per_s: the cloud reclaims a VM, as it may with a spot VM.
        bad_rows: a host looks for bad rows in a run, besides its other work; that takes up to ``bad_rows_s``.
        bad_rows_s: see ``bad_rows``.
        notice_s: how long before a reclaim the cloud announces it; 0: it does not.
        slow_link_per_s: a link carries a tenth for a while.
        clock_step_per_s: the gateway's clock steps forward by up to ``clock_step_s``.
        clock_step_s: see ``clock_step_per_s``.
    """

    lost_reply: float = 0.0
    doubled_reply: float = 0.0
    late_reply: float = 0.0
    late_s: float = 0.0
    bad_rows: float = 0.0
    bad_rows_s: float = 40.0
    failed_launch: float = 0.0
    stuck_boot: float = 0.0
    refused_end: float = 0.0
    crash_per_s: float = 0.0
    hang_per_s: float = 0.0
    reclaim_per_s: float = 0.0
    notice_s: float = 0.0
    slow_link_per_s: float = 0.0
    clock_step_per_s: float = 0.0
    clock_step_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOptions:
    """One query and its events.

    Attributes:
        settings: how it is switched.
        load: its events.
        statistic: what L_t is.
        poisson: whether the number of events is drawn, with this mean.
        run_s: a run holds the events of this time, but at most ``run_events``.
        run_events: see ``run_s``.
        event_bytes: raw size.
        sent_part: the part of it that crosses the WAN.
        flush_s: how long to wait for a gap; None waits for ever.
        ordered: False releases on completion.
        disordered: part of the runs that contain an event out of order, and so go home.
        batch_s: the cost of a micro-batch of one run, however small; None: from ``Machines``.
        further_run_s: the cost of each further run in it.
        batch_runs: the most runs in it.
        event_s: the additional cost of an event; None: from ``Machines``.
        stateful: its engine holds state: its runs go to one place, and are not dispatched elsewhere.
        moves: it is stateful, and moves with its state; else a stateful query stays at home.
        state_bytes: its state, as it is copied for a move.
        killed_at_step: the probability that the gateway is killed at a step of a move.
        killed_at_look: the same, at each other time when something is done for a query with state.
        credit_bytes: how many payload bytes a host allows in flight.
        held_bytes_max: how many bytes of results may wait before dispatch stops.
    """

    settings: QuerySettings
    load: Generator
    statistic: Statistic = "mean"
    poisson: bool = True
    run_s: float = 0.5
    run_events: int = 5000
    event_bytes: int = 1000
    sent_part: float = 0.3
    flush_s: float | None = 30.0
    ordered: bool = True
    disordered: float = 0.0
    batch_s: float | None = None
    further_run_s: float = 0.0
    batch_runs: int = 1
    event_s: float | None = None
    stateful: bool = False
    moves: bool = False
    state_bytes: int = 1_000_000
    killed_at_step: float = 0.0
    killed_at_look: float = 0.0
    credit_bytes: int = CREDIT_BYTES
    held_bytes_max: int = HELD_BYTES_MAX

    def exchange_settings(self, patience: Patience, place: str) -> ExchangeSettings:
        """Return the settings of its exchange; ``place`` is where a stateful query is."""
        return ExchangeSettings(
            patience=patience,
            home_only=self.stateful,
            place=place,
            ordered=self.ordered,
            flush_s=self.flush_s,
            held_bytes_max=self.held_bytes_max,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Machines:
    """Hosts and links.

    Attributes:
        events_per_s: the rate of the private host while it works.
        batch_s: the cost of a micro-batch there, however small.
        vm_speed: a VM's speed relative to it; 0.5 needs twice as long.
        cores: micro-batches that a host runs at a time.
        link_delay_s: one way over the WAN.
        link_bytes_per_s: rate of the link to one VM.
        boot: the distribution of boot times around ``boot_s`` of the scheduler.
        detect_s: time until a dead host is noticed.
        home_restart_s: time to launch a new private host.
    """

    events_per_s: float = 2000.0
    batch_s: float = 0.05
    vm_speed: float = 1.0
    cores: int = 1
    link_delay_s: float = 0.03
    link_bytes_per_s: float = 5e6
    boot: BootTimes = field(default_factory=LogNormal)
    detect_s: float = 3.0
    home_restart_s: float = 8.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldOptions:
    """A whole world.

    Attributes:
        seed: decides everything that is random.
        scheduler: the production scheduler's settings; its queries are those of ``queries``.
        queries: at least one.
        machines: at home and in the cloud.
        faults: what goes wrong.
        patience: how long to wait for answers.
        load_s: how long events arrive; then the gateway drains and terminates every VM.
        rest_s: it must be at rest this long after that.
    """

    seed: int
    scheduler: SchedulerSettings
    queries: tuple[QueryOptions, ...]
    machines: Machines = Machines()
    faults: Faults = Faults()
    patience: Patience = field(default_factory=Patience)
    load_s: float = 120.0
    rest_s: float = 7200.0


def drawn(seed: int, *, load_s: float = 120.0, moves: bool = True) -> WorldOptions:
    """Return a faulty world of one to three queries; without ``moves``, none of them moves with its state."""
    draw = random.Random(f"world {seed}")  # noqa: S311  # no secret
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
    period_s = draw.choice([20.0, 30.0, 60.0])
    queries = tuple(_tightened(query, seed) for query in queries)
    terms = BillingTerms(period_s, draw.choice([0.0, period_s, 2 * period_s]), 0.36, draw.choice([0.0, 0.09]))
    if moves and seed % MOVING_WORLDS == MOVING_REST:
        queries, max_vms = (_with_state(queries[0], seed, machines, terms.first_block_s), *queries[1:]), max(1, max_vms)
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
    draw = random.Random(f"tight {seed} {query.settings.name}")  # noqa: S311  # no secret
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
    draw = random.Random(f"state {seed}")  # noqa: S311  # no secret
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


def _with_bad_rows(faults: Faults, seed: int) -> Faults:
    """Return other faults in every eighth world: bad rows, and no lost answers, since such a run is never overdue."""
    if random.Random(f"bad rows {seed}").random() >= _BAD_ROWS_WORLDS:  # noqa: S311  # no secret
        return faults
    return replace(faults, bad_rows=0.05, lost_reply=0.0, hang_per_s=0.0)


def _with_policy(settings: QuerySettings, seed: int, max_vms: int) -> QuerySettings:
    """Return settings with a policy in every second world; drawn separately, so that nothing else changes."""
    from policies.planning.plain import CpuOptions, StaticOptions
    from policies.planning.planner import PlannerOptions
    from policies.planning.queueing import QueueingOptions

    draw = random.Random(f"policy {seed} {settings.name}")  # noqa: S311  # no secret
    window_s, cycle_s = draw.choice([2.0, 4.0]), draw.uniform(20, 60)
    policies = (
        PlannerOptions(window_s=window_s, windows=12, history=100, cycles_s=(cycle_s,)),
        QueueingOptions(window_s=window_s, forecast=draw.choice(["naive", "seasonal", "gp"]), cycle_s=cycle_s),
        CpuOptions(start_above=0.7, stop_below=0.5, window_s=window_s),
        StaticOptions(draw.randint(0, max_vms)),
    )
    return replace(settings, policy=draw.choice([None, None, None, *policies, policies[0]]))


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
