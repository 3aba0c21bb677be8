"""From a file of graphs to a simulation: queries, VMs on hosts, networks, failures."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from engines.simulated.boot import LogNormal
from engines.simulated.datacentre import Datacentre, NoRoomError, SimulatedCloud, SimulatedHost
from engines.simulated.generators import Bursts, ConstantRate, Generator, Poisson, UniformIncrease
from engines.simulated.metrics import MetricCalculator
from engines.simulated.placement import Link, Placement, PlacementStrategy, SpreadQueries, SpreadVertices
from engines.simulated.query import (
    Combination,
    Consumer,
    Edge,
    JoinOperator,
    Operator,
    Producer,
    QueryGraph,
    Vertex,
    WindowedOperator,
    constant,
)
from engines.simulated.scheduling import DynamicShares, ProportionalToIpe, SchedulingStrategy, WorkConserving
from engines.simulated.simulation import Simulation
from gateway.simulate.graphs.model import (
    ConsumerSection,
    FailureSection,
    GraphSection,
    GraphsFile,
    JoinSection,
    NetworkSection,
    ProducerSection,
    VertexSection,
    WindowSection,
)

_BITS_PER_BYTE = 8
_FAILURES_MAX = 10_000
_PLACING: Mapping[str, PlacementStrategy] = {"queries": SpreadQueries(), "vertices": SpreadVertices()}
_SCHEDULING: Mapping[str, Callable[[Mapping[str, float]], SchedulingStrategy]] = {
    "weighted": ProportionalToIpe,
    "dynamic": DynamicShares,
    "work_conserving": WorkConserving,
}


class CannotBuildError(ValueError):
    """The graphs or the machines of a file cannot be simulated; the message says why and what to change."""


@dataclass(frozen=True, slots=True)
class BuiltGraphs:
    """Everything that is simulated; vertices are called GRAPH.VERTEX."""

    queries: tuple[QueryGraph, ...]
    cloud: SimulatedCloud
    placement: Placement
    scheduling: SchedulingStrategy
    tick_s: float

    def simulation(self, calculators: Sequence[MetricCalculator]) -> Simulation:
        """Return a simulation at its beginning. Generators draw anew: build anew for the same events."""
        return Simulation(
            self.queries,
            self.cloud.vms,
            self.placement,
            interval_s=self.tick_s,
            scheduling=lambda _: self.scheduling,
            links=self.cloud.links,
            calculators=calculators,
        )


def build(file: GraphsFile, seed: int) -> BuiltGraphs:
    """Return what a checked file describes.

    Args:
        file: the file.
        seed: of arrivals and failures.

    Raises:
        CannotBuildError: a graph is not one, or a VM has no room.
    """
    try:
        queries = tuple(_query(name, graph, seed) for name, graph in file.graphs.items())
        cloud = _cloud(file)
        _fail(file, cloud, seed)
    except NoRoomError as error:
        raise CannotBuildError(f"{error}; use a smaller VM, a larger host or another data centre") from error
    except ValueError as error:
        raise CannotBuildError(str(error)) from error
    weights = {
        f"{name}.{vertex}": section.weight
        for name, graph in file.graphs.items()
        for (_, vertex), section in graph.vertices
    }
    placement = _placed(file, queries, cloud)
    return BuiltGraphs(queries, cloud, placement, _SCHEDULING[file.scheduling](weights), file.tick_s)


# ----------------------------------------------------------------------------------------------------------- queries


def _query(name: str, graph: GraphSection, seed: int) -> QueryGraph:
    vertices = [_vertex(f"{name}.{vertex}", section, seed) for (_, vertex), section in graph.vertices]
    edges = [
        Edge(f"{name}.{edge.origin}", f"{name}.{edge.target}", edge.selectivity, edge.event_bytes)
        for edge in graph.edges
    ]
    return QueryGraph(name, vertices, edges)


def _vertex(name: str, section: VertexSection, seed: int) -> Vertex:
    ipe, queue = section.instructions, section.queue
    match section:
        case ProducerSection():
            return Producer(name=name, ipe=ipe, queue_events=queue, generator=_generator(name, section, seed))
        case WindowSection(size_s=size_s):
            advance_s, function = section.advance_s or size_s, _combination(section)
            return WindowedOperator(
                name=name, ipe=ipe, queue_events=queue, window_s=size_s, advance_s=advance_s, function=function
            )
        case JoinSection(window_s=window_s, reduction=reduction):
            return JoinOperator(name=name, ipe=ipe, queue_events=queue, window_s=window_s, reduction=reduction)
        case ConsumerSection():
            return Consumer(name=name, ipe=ipe, queue_events=queue)
        case _:
            return Operator(name=name, ipe=ipe, queue_events=queue)


def _combination(window: WindowSection) -> Combination:
    if window.results is not None:
        return constant(window.results)
    per_event = window.results_per_event or 0.0
    return lambda counts: per_event * sum(counts.values())


def _generator(name: str, section: ProducerSection, seed: int) -> Generator:
    rate = ConstantRate(section.rate_per_s)
    load: Generator = rate if section.rises_over_s <= 0 else UniformIncrease(section.rate_per_s, section.rises_over_s)
    if section.bursts is not None:
        load = Bursts(load, section.bursts.every_s, section.bursts.for_s, section.bursts.times)
    if section.arrivals == "even":
        return load
    return Poisson(load, np.random.default_rng([seed, *name.encode()]))


# ---------------------------------------------------------------------------------------------------------- machines


def _link(network: NetworkSection) -> Link:
    rate = math.inf if network.bits_per_s is None else network.bits_per_s / _BITS_PER_BYTE
    return Link(network.delay_s, rate)


def _cloud(file: GraphsFile) -> SimulatedCloud:
    centres = [
        Datacentre(
            name,
            tuple(SimulatedHost(host, section.mips, section.cores) for host, section in centre.hosts.items()),
            _link(centre.network),
        )
        for name, centre in file.datacentres.items()
    ]
    cloud = SimulatedCloud(centres, between=_link(file.between), boot=LogNormal(0.0))
    going = sorted((vm.ends_s, name) for name, vm in file.vms.items() if vm.ends_s is not None)
    # By time, so that a VM may use what an earlier one has left; the order of the file decides between equal times.
    for name, vm in sorted(file.vms.items(), key=lambda item: item[1].ordered_s):
        while going and going[0][0] <= vm.ordered_s:
            ends_s, gone = going.pop(0)
            cloud.end(gone, ends_s)
        cloud.start(name, vm.mips, vm.datacentre, vm.ordered_s + vm.boot_s, cores=vm.cores, host=vm.host)
    for ends_s, gone in going:
        cloud.end(gone, ends_s)
    return cloud


def _fail(file: GraphsFile, cloud: SimulatedCloud, seed: int) -> None:
    for number, failure in enumerate(file.failures):
        down_s = _down(failure, file.for_s, random.Random(f"failures {seed} {number}"))  # noqa: S311  # no secret
        for vm in cloud.vms:
            if failure.vm == vm.name or (failure.host is not None and failure.host == cloud.host(vm.name)):
                cloud.fail(vm.name, down_s)


def _down(failure: FailureSection, until_s: float, drawn: random.Random) -> list[tuple[float, float]]:
    if failure.at_s is not None:
        return [(failure.at_s, failure.at_s + failure.back_after_s)]
    assert failure.every_s is not None, "checked"
    down_s: list[tuple[float, float]] = []
    at_s = drawn.expovariate(1 / failure.every_s)
    while at_s < until_s:
        if len(down_s) == _FAILURES_MAX:
            raise ValueError(f"failures: more than {_FAILURES_MAX:,} of one entry; make every or back_after longer")
        down_s.append((at_s, at_s + failure.back_after_s))
        at_s += failure.back_after_s + drawn.expovariate(1 / failure.every_s)
    return down_s


def _placed(file: GraphsFile, queries: Sequence[QueryGraph], cloud: SimulatedCloud) -> Placement:
    """Return the VM of each vertex: what the file says, else what the strategy chooses."""
    chosen = dict(_PLACING[file.placement].place(queries, cloud.vms))
    for name, graph in file.graphs.items():
        for (_, vertex), section in graph.vertices:
            chosen[f"{name}.{vertex}"] = section.vm or graph.vm or chosen[f"{name}.{vertex}"]
    return chosen
