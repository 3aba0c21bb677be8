"""The options of a simulated world."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from engines.simulated.boot import BootTimes, LogNormal
from engines.simulated.generators import Generator
from gateway.core.decide.profiler import Statistic
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.core.exchange import ExchangeSettings
from gateway.query.flow.delivery import HELD_BYTES_MAX
from gateway.query.flow.run import Run
from gateway.simulate.sizes import VmSize
from infra.link.credit import CREDIT_BYTES
from infra.messages import SelectionRule
from infra.queryplan import SelectionConditions
from policies.failures.overdue import Patience
from policies.keys.places import STAY_S
from policies.switching.query import QuerySettings

WAITING_PART = 0.5
"""About half of a full lane's content is in the running micro-batch; what waits meanwhile is in the next one."""

LEAST_RUN_S = 0.05
"""A simulated run has the events of this time at least, however short ``runs.linger`` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """Faults: probabilities, and rates per second; none by default.

    Attributes:
        lost_reply: an answer never comes.
        doubled_reply: an answer comes twice.
        late_reply: an answer comes up to ``late_s`` late.
        late_s: see ``late_reply``.
        failed_launch: no VM is available.
        sold_out: a size is not available, by its name; a launch then gets the next one of ``Machines.sizes``.
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
    sold_out: Mapping[str, float] = field(default_factory=dict)
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
class KeyLoad:
    """How popular keys are.

    Attributes:
        keys: how many there are.
        skew: the k-th most popular key has k to the power of minus this as its weight (Zipf); 0: all are equal.
        hot: the part of the events that one more key has; 0: there is no such key.
        changes_s: so often other keys become popular; 0: never.
    """

    keys: int = 1000
    skew: float = 0.0
    hot: float = 0.0
    changes_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionLoad:
    """A query whose events become selections, and whose hosts return the runs as they got them.

    Attributes:
        rule: which event opens a selection, and which closes it.
        conditions: those of the rule's conditions that the gateway evaluates; None if it has none.
        rows: returns the rows of the next so many events, the last of which came at this time; it draws them anew in
            each world.
        deliver: called with each run that the sink gets, in their order.
        killed_per_s: how often the gateway is killed.
    """

    rule: SelectionRule
    conditions: SelectionConditions | None = None
    rows: Callable[[int, float], pa.RecordBatch]
    deliver: Callable[[pa.RecordBatch], None]
    killed_per_s: float = 0.0


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
        parts: into how many parts it is divided by its keys, each with a place of its own; it is stateful then. 0: it
            is not divided.
        keys: the keys of its events, if it is divided.
        part_stay_s: see ``PartPlaces``.
        selections: what its events become; None: it has no selections. Results are released in strict order.
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
    parts: int = 0
    keys: KeyLoad = KeyLoad()
    part_stay_s: float = STAY_S
    selections: SelectionLoad | None = None
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

    def costs_s(self, machines: Machines) -> tuple[float, float]:
        """Return what a micro-batch of one run costs, and an event: as measured for this query or, if not, for all."""
        batch_s = machines.batch_s if self.batch_s is None else self.batch_s
        return batch_s, 1.0 / machines.events_per_s if self.event_s is None else self.event_s

    def batch_work_s(self, machines: Machines, runs: Sequence[Run]) -> float:
        """Return how long a core at home works on a micro-batch of these runs."""
        batch_s, event_s = self.costs_s(machines)
        return batch_s + (len(runs) - 1) * self.further_run_s + sum(run.events for run in runs) * event_s


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
        sizes: the sizes of VMs in the order in which they are tried, all equally fast; none: VMs have no size.
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
    sizes: tuple[VmSize, ...] = ()
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
        begins_wall_s: when it begins, in seconds since 1970.
    """

    seed: int
    scheduler: SchedulerSettings
    queries: tuple[QueryOptions, ...]
    machines: Machines = Machines()
    faults: Faults = Faults()
    patience: Patience = field(default_factory=Patience)
    load_s: float = 120.0
    rest_s: float = 7200.0
    begins_wall_s: float = 0.0
