"""The results of a fluid world."""

from __future__ import annotations

from dataclasses import dataclass, field

from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.fluid.tally import Point
from gateway.simulate.sharing import QuotaFigures
from gateway.simulate.sizes import SizeLaunches
from policies.signals import Command


@dataclass(frozen=True, slots=True)
class Commanded:
    """A command, and its gateway."""

    at_s: float
    site: int
    command: Command


@dataclass(frozen=True, slots=True)
class FluidQueryOutcome:
    """The results of one query.

    Latencies are from arrival to completion, quantiles within 2 %. ``again_events`` were in the lane of a VM that was
    lost or terminated, and were sent again.
    """

    name: str
    events: float
    mean_s: float
    p95_s: float
    largest_s: float
    missed: float
    cloud_events: float
    sent_bytes: float
    shed_events: float
    again_events: float


@dataclass(frozen=True, slots=True)
class FluidOutcome:
    """The results of a fluid world.

    Attributes:
        lasted_s: time until all gateways were at rest.
        slots: simulated slots.
        calls: calls of schedulers at the end of a slot.
        vms: VMs that were started.
        usd: their cost.
        mean_s: mean latency of all events.
        p95_s: within 2 %.
        missed: part of the events that took longer than promised.
        queries: one outcome each.
        points: values over time: of each query if there are at most ``NAMED_MOST``, else of all together.
        vm_marks: (at_s, VM, what) when a VM was started, ready, terminated and gone; of the first site.
        commands: all commands except ``Ask`` and ``Fit``, up to a limit.
        unanswered: events that still waited when the gateways stopped.
        vms_most: VMs that lived at a time, of all gateways.
        quota: how the quota was used, if there is one.
        faults: what went wrong.
        sizes: the VMs of each size; empty if no VM could be launched, or VMs have no size.
    """

    lasted_s: float
    slots: int
    calls: int
    vms: int
    usd: float
    mean_s: float
    p95_s: float
    missed: float
    queries: tuple[FluidQueryOutcome, ...]
    points: tuple[Point, ...]
    vm_marks: tuple[tuple[float, str, str], ...]
    commands: tuple[Commanded, ...]
    unanswered: float = 0.0
    vms_most: int = 0
    quota: QuotaFigures = field(default_factory=QuotaFigures)
    faults: FaultCounts = field(default_factory=FaultCounts)
    sizes: tuple[SizeLaunches, ...] = ()

    @property
    def cloud_share(self) -> float:
        """Return which part of the named queries' events was completed in the cloud; 0 without events."""
        events = sum(query.events for query in self.queries)
        return sum(query.cloud_events for query in self.queries) / events if events else 0.0


@dataclass(frozen=True, slots=True)
class SiteOutcome:
    """The results of one gateway: mean latency, VMs started, their cost, and the part of the events that they had."""

    mean_s: float
    vms: int
    usd: float
    cloud_share: float
