"""The number of VMs for overtaking, as the queueing policy chooses it (Mayer et al., Figures 8a to 8d).

Virtual time, production code: splitter, exchange, scheduler and ``policy: queueing`` decide for a query with
selections, as in ``spillway simulate``; only the hosts' work is computed. Each vehicle that leaves is compared with
those that are on the stretch, so the work grows with the square of the rate, as in the paper.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from msgspec import structs
from planning.document import table

from engines.traffic.overtaking import SELECTIONS
from engines.traffic.vehicles import BEGIN, END, Passage, passages_of
from gateway.config.sections.selections import SelectionsConfig
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.eventlogs import LoggedScheduler
from gateway.simulate.options import Machines, QueryOptions, SelectionLoad, WorldOptions
from gateway.simulate.runs.world import World
from infra.messages import Predicate
from infra.queryplan import SelectionConditions
from policies.arrays import Array
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.planning.plain import CpuOptions, StaticOptions
from policies.planning.queueing import QueueingOptions
from policies.signals import Event, SlotEnded
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings

if TYPE_CHECKING:
    from policies.choose import PolicyOptions

LIMIT_EVENTS, PROBABILITY = 60, 0.95
WAY_S, BOOT_S, LINGER_S = 60.0, 20.0, 1.0
BATCH_S, ROW_S = 0.3, 0.0006
STEADY_PER_S, LOW_PER_S = 5.0, 0.5
STEADY_S, RUSH_S = 3_600.0, 10_800.0
BEGUN_S = 180.0
"""Until then the first VMs boot; it is not counted, as in the paper, which begins with a degree of 8."""
MOST_VMS = 6
SEED = 1
RULE = SelectionsConfig.model_validate(SELECTIONS).rule
CONDITIONS = SelectionConditions(
    opening=Predicate(op="eq", column=("position",), value=BEGIN),
    closing=Predicate(op="eq", column=("position",), value=END),
)
SCHEMA = pa.schema({"vehicle": pa.string(), "position": pa.int32(), "at": pa.timestamp("us", tz="UTC")})


@dataclass(frozen=True)
class Replayed:
    """Passages that come at their own times; the load of a world, and its rows.

    Attributes:
        passages: by time.
        times_s: the same, since the first vehicle was awaited, shape (passages,).
    """

    passages: Sequence[Passage]
    times_s: Array

    def events(self, from_s: float, to_s: float) -> float:
        """See ``Generator``."""
        return float(len(self.arrivals_s(from_s, to_s)))

    def arrivals_s(self, from_s: float, to_s: float) -> Array:
        """See ``Stamped``."""
        first, end = np.searchsorted(self.times_s, [from_s, to_s])
        return self.times_s[first:end]

    def rows(self) -> Callable[[int, float], pa.RecordBatch]:
        """Return what gives the next rows."""
        left = iter(self.passages)

        def of(count: int, _until_s: float) -> pa.RecordBatch:
            return pa.RecordBatch.from_pylist([structs.asdict(next(left)) for _ in range(count)], schema=SCHEMA)

        return of


@dataclass(frozen=True)
class Outcome:
    """What a policy did.

    Attributes:
        kept: the part of the time in which no more events waited or were processed than allowed.
        p95_events: of these events.
        vms: VMs that were used, on average.
    """

    kept: float
    p95_events: float
    vms: float


def steady(at_s: Array) -> Array:
    """Return vehicles per second: 200 ms between them."""
    return np.full_like(at_s, STEADY_PER_S)


def rush(at_s: Array) -> Array:
    """Return vehicles per second: a third of the time each for the way up, the peak and the way down."""
    rate: Array = np.interp(at_s / RUSH_S, [0, 1 / 3, 2 / 3, 1], [LOW_PER_S, STEADY_PER_S, STEADY_PER_S, LOW_PER_S])
    return rate


def replayed(rate: Callable[[Array], Array], lasts_s: float) -> Replayed:
    """Draw vehicles: a Poisson process whose rate changes, by thinning."""
    rng = np.random.default_rng(SEED)
    many = np.cumsum(rng.exponential(1 / STEADY_PER_S, int(1.1 * lasts_s * STEADY_PER_S) + 100))
    came_s = many[(rng.uniform(size=len(many)) * STEADY_PER_S < rate(many)) & (many < lasts_s)]
    passages, times_s = passages_of(came_s.tolist(), SEED, WAY_S)
    return Replayed(passages, np.array(times_s))


def play(load: Replayed, lasts_s: float, policy: PolicyOptions) -> Outcome:
    """Let a policy choose the number of VMs."""
    settings = QuerySettings(
        name="overtaking",
        # Only the policy launches VMs, and they are used whenever there are any.
        switching=SwitchingSettings(
            start_vm_above_s=600.0, send_above_s=0.2, keep_vm_above_s=0.1, keep_vm_bytes=0, tolerance_s=0.0
        ),
        latency_qos_s=10.0,
        mode="auto",
        policy=policy,
    )
    query = QueryOptions(
        settings=settings,
        load=load,
        poisson=False,
        run_s=LINGER_S,
        flush_s=None,
        batch_s=BATCH_S,
        event_s=ROW_S,
        selections=SelectionLoad(rule=RULE, conditions=CONDITIONS, rows=load.rows(), deliver=lambda _: None),
    )
    scheduler = SchedulerSettings(
        queries=(settings,),
        max_vms=MOST_VMS,
        billing=BillingTerms(60.0, 60.0, 0.36, 0.0),
        budget=Budget(),
        boot_s=BOOT_S,
        slot_s=1.0,
    )
    told: list[Event] = []
    world = World(
        WorldOptions(
            seed=SEED, scheduler=scheduler, queries=(query,), machines=Machines(link_bytes_per_s=1e8), load_s=lasts_s
        ),
        make_scheduler=lambda settings: LoggedScheduler(settings, lambda event, _: told.append(event)),
    )
    outcome = world.run()
    ended = (event for event in told if isinstance(event, SlotEnded))
    counted = [event.queries[0] for event in ended if BEGUN_S <= event.at_s < lasts_s]
    waiting = np.array([slot.backlog_events + sum(slot.open_events.values()) for slot in counted])
    vm_s = outcome.usd / 0.36 * 3600.0
    return Outcome(float(np.mean(waiting <= LIMIT_EVENTS)), float(np.quantile(waiting, 0.95)), vm_s / lasts_s)


@cache
def least_vms(rate_per_s: float) -> int:
    """Return the smallest number of VMs that keeps the limit at a constant rate."""
    load = replayed(lambda at_s: np.full_like(at_s, rate_per_s), 900.0)
    return next(
        vms
        for vms in range(MOST_VMS + 1)
        if vms == MOST_VMS or play(load, 900.0, StaticOptions(vms)).kept >= PROBABILITY
    )


def least_on_average(rate: Callable[[Array], Array], from_s: float, until_s: float) -> float:
    """Return the mean of the smallest numbers, as if the rate were known and VMs needed no boot."""
    at_s = np.arange(from_s, until_s, 60.0)
    rates = np.ceil(np.asarray(rate(at_s)) * 4) / 4
    return float(np.mean([least_vms(float(each)) for each in rates]))


def report(_data: Path | None) -> str:
    """Play both scenarios with each policy; return the table."""
    rows: list[tuple[Any, ...]] = []
    for title, rate, lasts_s in (("static (8a, 8b)", steady, STEADY_S), ("dynamic (8c, 8d)", rush, RUSH_S)):
        load, least = replayed(rate, lasts_s), least_on_average(rate, 0.0, lasts_s)
        for name, policy in _policies():
            begun_s = time.perf_counter()
            found = play(load, lasts_s, policy)
            rows.append(
                (
                    title,
                    name,
                    f"{found.kept:.1%}",
                    f"{found.p95_events:.0f}",
                    f"{found.vms:.2f}",
                    f"{found.vms / least:.2f}",
                )
            )
            print(rows[-1], f"{time.perf_counter() - begun_s:.0f} s", flush=True)
    head = ("load", "policy", "limit kept", "95th percentile of events", "VMs on average", "times the minimum")
    return table(head, rows)


def _policies() -> list[tuple[str, PolicyOptions]]:
    queueing = QueueingOptions(window_s=40.0, buffer_limit=LIMIT_EVENTS, probability=PROBABILITY)
    return [
        ("queueing, windows of 40 s", queueing),
        ("queueing, windows of 20 s", replace(queueing, window_s=20.0)),
        ("CPU (70 %, 50 %)", CpuOptions(start_above=0.7, stop_below=0.5, window_s=5.0)),
    ]
