"""The results of a world of runs."""

from __future__ import annotations

from dataclasses import dataclass

from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.sizes import SizeLaunches


@dataclass(frozen=True, slots=True)
class QueryOutcome:
    """The results of one query.

    Latencies are from arrival to completion and to release; ``events`` are without shed ones. ``again_events`` were
    dispatched again, since a host was lost or did not answer.
    """

    name: str
    events: int
    shed_events: int
    mean_s: float
    p95_s: float
    delivery_mean_s: float
    late_results: int
    cloud_events: int
    sent_bytes: int
    again_events: int


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """The results of a world.

    Attributes:
        seed: of the world.
        lasted_s: virtual time until it was at rest.
        steps: number of actions.
        vms: VMs that were started.
        usd: their cost.
        queries: one outcome each.
        digest: SHA-256 of the trace.
        faults: what went wrong.
        sizes: the VMs of each size; empty if no VM could be launched, or VMs have no size.
    """

    seed: int
    lasted_s: float
    steps: int
    vms: int
    usd: float
    queries: tuple[QueryOutcome, ...]
    digest: str
    faults: FaultCounts
    sizes: tuple[SizeLaunches, ...] = ()
