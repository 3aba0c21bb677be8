"""Plays a file of graphs and says what came of it, for people, for JSON and for charts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from engines.simulated.metrics import EventTotals, GraphsSettings, Latency, MetricsBin, MetricsByTime, Throughput
from engines.simulated.placement import SimulatedVm
from engines.simulated.query import Consumer
from engines.simulated.running import RunningProducer
from engines.simulated.simulation import Simulation
from gateway.simulate.eventlogs import NO_LOGS, EventLogs
from gateway.simulate.graphs.building import BuiltGraphs, build
from gateway.simulate.graphs.model import GraphsFile
from policies.money.billing import BillingTerms

SECOND_S, MINUTE_S = 1.0, 60.0
_SAMPLES_MAX = 1440
_PER_MI = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOutcome:
    """What a consumer got: eq. 6 and 10 after the warm-up, and by second and minute from the beginning."""

    name: str
    events: float
    latency_s: float | None
    throughput_per_s: float
    by_second: list[MetricsBin]
    by_minute: list[MetricsBin]


@dataclass(frozen=True, slots=True, kw_only=True)
class VertexOutcome:
    """What a vertex did.

    Attributes:
        name: of the vertex.
        vm: where it ran.
        processed_events: in the whole simulation.
        waiting_events: in its queues at the end.
        most_waiting_events: the highest number among samples, which are at most 1,440.
        dropped_events: of a producer whose queue was full.
        lost_events: with a VM that failed.
    """

    name: str
    vm: str
    processed_events: float
    waiting_events: float
    most_waiting_events: float
    dropped_events: float
    lost_events: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmOutcome:
    """What a VM did and cost.

    Attributes:
        name: of the VM.
        host: where it was.
        datacentre: the host's.
        up_s: how long it executed, or could have.
        failures: how often it failed.
        used: the part of its instructions that vertices used.
        billed_s: in whole periods; 0 if it costs nothing.
        sent_bytes: to other data centres.
        usd: for time and traffic.
        down_s: when it failed, and when it was back.
        ready_s: when it began to execute.
        ends_s: when it was terminated, or the simulation ended.
    """

    name: str
    host: str
    datacentre: str
    up_s: float
    failures: int
    used: float
    billed_s: float
    sent_bytes: float
    usd: float
    down_s: list[tuple[float, float]]
    ready_s: float
    ends_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphsOutcome:
    """The result of a simulation; ``queues``: (time, waiting events of each vertex) at times."""

    lasted_s: float
    tick_s: float
    measured_from_s: float
    consumers: list[ConsumerOutcome]
    vertices: list[VertexOutcome]
    vms: list[VmOutcome]
    queues: list[tuple[float, list[float]]]

    @property
    def usd(self) -> float:
        """Return what all VMs cost."""
        return sum(vm.usd for vm in self.vms)


def play(
    file: GraphsFile, seed: int, progress: Callable[[float], None] = lambda _: None, logs: EventLogs = NO_LOGS
) -> GraphsOutcome:
    """Simulate a checked file.

    Args:
        file: the file.
        seed: of arrivals and failures.
        progress: called with the simulated time, in s, now and then.
        logs: where the event log goes.

    Raises:
        CannotBuildError: see ``build``.
        OSError: the log cannot be written.
    """
    built = build(file, seed)
    latency, throughput = Latency(file.measure_from_s), Throughput(built.queries, file.measure_from_s)
    seconds, minutes = MetricsByTime(built.queries, SECOND_S), MetricsByTime(built.queries, MINUTE_S)
    totals = EventTotals()
    with logs.entries_of(GraphsSettings(built.placement, file.tick_s, seed)) as logged:
        simulation = built.simulation([latency, throughput, seconds, minutes, totals, *logged])
        queues = _run(simulation, file.for_s, progress)
    until_s = simulation.now_s
    consumers = [
        ConsumerOutcome(
            name=name,
            events=totals.processed.get(name, 0.0),
            latency_s=latency.latency_s(name),
            throughput_per_s=throughput.per_s(name, until_s),
            by_second=seconds.of(name, until_s),
            by_minute=minutes.of(name, until_s),
        )
        for query in built.queries
        for name in query.named(Consumer)
    ]
    return GraphsOutcome(
        lasted_s=until_s,
        tick_s=file.tick_s,
        measured_from_s=file.measure_from_s,
        consumers=consumers,
        vertices=_vertices(simulation, built, totals, queues),
        vms=[_vm(vm, file, built, totals, until_s) for vm in built.cloud.vms],
        queues=queues,
    )


def _run(simulation: Simulation, for_s: float, progress: Callable[[float], None]) -> list[tuple[float, list[float]]]:
    step_s = max(SECOND_S, for_s / _SAMPLES_MAX)
    queues = []
    for number in range(1, math.ceil(for_s / step_s - 1e-9) + 1):
        simulation.run(min(for_s, number * step_s))
        queues.append((simulation.now_s, [vertex.queued_events for vertex in simulation.vertices.values()]))
        progress(simulation.now_s)
    return queues


def _vertices(
    simulation: Simulation, built: BuiltGraphs, totals: EventTotals, queues: list[tuple[float, list[float]]]
) -> list[VertexOutcome]:
    return [
        VertexOutcome(
            name=name,
            vm=built.placement[name],
            processed_events=totals.processed.get(name, 0.0),
            waiting_events=vertex.queued_events,
            most_waiting_events=max((waiting[at] for _, waiting in queues), default=0.0),
            dropped_events=vertex.discarded_events if isinstance(vertex, RunningProducer) else 0.0,
            lost_events=vertex.lost_events,
        )
        for at, (name, vertex) in enumerate(simulation.vertices.items())
    ]


def _vm(vm: SimulatedVm, file: GraphsFile, built: BuiltGraphs, totals: EventTotals, until_s: float) -> VmOutcome:
    section = file.vms[vm.name]
    ends_s = min(vm.ends_s, until_s)
    up_s = vm.works_s(0.0, until_s)
    used = sum(
        totals.processed.get(name, 0.0) * vertex.ipe
        for query in built.queries
        for name, vertex in query.vertices.items()
        if built.placement[name] == vm.name
    )
    sent_bytes = _sent_away(vm.name, file, built, totals)
    billing, billed_s, usd = file.datacentres[section.datacentre].billing, 0.0, 0.0
    if billing is not None:
        terms = BillingTerms(billing.period_s, billing.minimum_s, section.usd_per_hour, billing.usd_per_gb_sent)
        if section.ordered_s < ends_s:
            billed_s = terms.billed_s(section.ordered_s, ends_s)
        usd = terms.time_usd(billed_s) + terms.egress_usd(sent_bytes)
    return VmOutcome(
        name=vm.name,
        host=built.cloud.host(vm.name),
        datacentre=section.datacentre,
        up_s=up_s,
        failures=sum(vm.fails(at_s, math.nextafter(at_s, math.inf)) for at_s, _ in vm.down_s if at_s < until_s),
        used=used / (up_s * vm.mips * _PER_MI) if up_s > 0 else 0.0,
        billed_s=billed_s,
        sent_bytes=sent_bytes,
        usd=usd,
        down_s=[(from_s, min(to_s, until_s)) for from_s, to_s in vm.down_s if from_s < until_s],
        ready_s=vm.ready_s,
        ends_s=ends_s,
    )


def _sent_away(vm: str, file: GraphsFile, built: BuiltGraphs, totals: EventTotals) -> float:
    """Return how many bytes a VM sent to other data centres."""
    return sum(
        totals.sent.get((edge.origin, edge.target), 0.0) * edge.event_bytes
        for query in built.queries
        for edge in query.edges
        if built.placement[edge.origin] == vm
        and file.vms[built.placement[edge.target]].datacentre != file.vms[vm].datacentre
    )
