"""The options of a fluid world: gateways, their queries, and their load."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from engines.simulated.generators import Generator
from gateway.core.decide.profiler import Statistic
from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.simulate.options import Faults, Machines
from gateway.simulate.sharing import QuotaOptions
from policies.arrays import Array, IntArray


class LoadSource(Protocol):
    """Returns the events of each slot; called for one block of slots after the other."""

    def block(self, first_slot: int, slots: int) -> Array:
        """Return the events of each query, shape (slots, queries)."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidQuery:
    """One query.

    Attributes:
        name: as in the settings of its gateway's scheduler.
        statistic: what L_t is.
        run_s: a run holds the events of this time, but at most ``run_events``.
        run_events: see there.
        event_bytes: raw size.
        sent_part: the part of it that crosses the WAN.
        disordered: part of the runs that contain an event out of order, and so go home.
        batch_s: the cost of a micro-batch of one run, however small; None: from the site's ``Machines``.
        further_run_s: the cost of each further run in it.
        batch_runs: the most runs in it.
        event_s: the additional cost of an event; None: from the site's ``Machines``.
    """

    name: str
    statistic: Statistic = "mean"
    run_s: float = 0.5
    run_events: int = 5000
    event_bytes: float = 1000.0
    sent_part: float = 0.3
    disordered: float = 0.0
    batch_s: float | None = None
    further_run_s: float = 0.0
    batch_runs: int = 1
    event_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidSite:
    """One gateway with its private host.

    Attributes:
        scheduler: the production scheduler's settings.
        queries: those of ``scheduler``, in the same order.
        machines: hosts at home and in the cloud, and links.
    """

    scheduler: SchedulerSettings
    queries: tuple[FluidQuery, ...]
    machines: Machines = field(default_factory=Machines)


@dataclass(frozen=True, slots=True, kw_only=True)
class FluidOptions:
    """A whole fluid world.

    Attributes:
        seed: of boot times and faults.
        sites: the gateways; all have slots of the same length.
        load: events, in the order of all sites' queries.
        slots: how long events arrive; then the gateways drain and terminate every VM.
        rest_slots: after this many more slots the gateways stop, whatever still waits.
        faults: of them launches that fail and VMs that are reclaimed.
        every_slot: call each scheduler in each slot, even if it can have no effect.
        begins_wall_s: when it begins, in seconds since 1970.
        make_scheduler: creates the scheduler of a site.
        served: events per second of the private host and of a VM in a slot, instead of the cost of micro-batches; for
            machines whose speed was recorded.
        quota: what all gateways share; None: each has its own limits only.

    Raises:
        ValueError: the sites do not fit together.
    """

    seed: int
    sites: tuple[FluidSite, ...]
    load: LoadSource
    slots: int
    rest_slots: int = 86_400
    faults: Faults = field(default_factory=Faults)
    every_slot: bool = False
    begins_wall_s: float = 0.0
    make_scheduler: Callable[[SchedulerSettings], Scheduler] = Scheduler
    served: Callable[[int], tuple[float, float]] | None = None
    quota: QuotaOptions | None = None

    def __post_init__(self) -> None:
        if not self.sites or len({site.scheduler.slot_s for site in self.sites}) != 1:
            raise ValueError("a fluid world needs sites, all with slots of the same length")
        for site in self.sites:
            if [query.name for query in site.queries] != [query.name for query in site.scheduler.queries]:
                raise ValueError("a site's queries must be those of its scheduler, in the same order")
            if site.scheduler.quota != (self.quota is not None):
                raise ValueError("either all gateways share a quota, or none has one")

    @property
    def slot_s(self) -> float:
        """Length of a slot."""
        return self.sites[0].scheduler.slot_s


class FromGenerators:
    """A load of one generator for each query; for worlds of few queries.

    Args:
        generators: one for each query.
        slot_s: length of a slot.
    """

    def __init__(self, generators: Sequence[Generator], slot_s: float) -> None:
        self._generators = tuple(generators)
        self._slot_s = slot_s

    def block(self, first_slot: int, slots: int) -> Array:
        """See ``LoadSource``."""
        s = self._slot_s
        return np.array(
            [[g.events(t * s, (t + 1) * s) for g in self._generators] for t in range(first_slot, first_slot + slots)]
        )


class Spikes:
    """Poisson arrivals: each query has a rate that follows the day, and spikes at times of its own.

    Args:
        per_s: mean rate of each query, shape (queries,).
        slot_s: length of a slot.
        seed: of arrivals and of the times of spikes.
        day: the part by which the rate swings over a day.
        every_s: time between two spikes.
        for_s: length of a spike.
        times: factor of the rate during a spike.
        together: queries with equal numbers have their spikes together, shape (queries,).
    """

    def __init__(
        self,
        per_s: Array,
        slot_s: float,
        *,
        seed: int,
        day: float,
        every_s: float,
        for_s: float,
        times: float,
        together: IntArray,
    ) -> None:
        self._per_slot = np.asarray(per_s, dtype=np.float64) * slot_s
        self._slot_s = slot_s
        self._seed = seed
        self._random = np.random.default_rng([seed, 1])
        self._shift_s = np.random.default_rng([seed, 2]).uniform(0.0, every_s, int(together.max()) + 1)
        self._together = together
        self._day, self._every_s, self._for_s, self._times = day, every_s, for_s, times

    def block(self, first_slot: int, slots: int) -> Array:
        """See ``LoadSource``."""
        at_s = (first_slot + np.arange(slots))[:, None] * self._slot_s
        means = self._per_slot * (1.0 - self._day * np.cos(2.0 * np.pi * at_s / 86_400.0))
        in_spike = ((at_s + self._shift_s) % self._every_s < self._for_s)[:, self._together]
        drawn: Array = self._random.poisson(np.where(in_spike, self._times * means, means)).astype(np.float64)
        return drawn

    def restarted(self) -> Spikes:
        """Return the same load from its beginning."""
        fresh = copy(self)
        fresh.restart()
        return fresh

    def restart(self) -> None:
        """Go back to the beginning."""
        self._random = np.random.default_rng([self._seed, 1])
