"""Small graphs for the simulator's tests: ticks of 1 s, vertices of a million instructions an event."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from engines.simulated.generators import ConstantRate, Generator
from engines.simulated.metrics import Latency, Log, Throughput
from engines.simulated.placement import Link, SimulatedVm
from engines.simulated.query import Consumer, Edge, JoinOperator, Operator, Producer, QueryGraph, WindowedOperator
from engines.simulated.simulation import Simulation

MILLION = 1e6
AMPLE_MIPS = 1e9


def producer(name: str, per_s: float | Generator = 10.0, **changes: Any) -> Producer:
    generator = ConstantRate(per_s) if isinstance(per_s, int | float) else per_s
    return Producer(**{"name": name, "ipe": MILLION, "generator": generator, **changes})


def operator(name: str, **changes: Any) -> Operator:
    return Operator(**{"name": name, "ipe": MILLION, **changes})


def window(name: str, **changes: Any) -> WindowedOperator:
    return WindowedOperator(**{"name": name, "ipe": MILLION, "function": lambda _: 1.0, **changes})


def join(name: str, **changes: Any) -> JoinOperator:
    return JoinOperator(**{"name": name, "ipe": MILLION, **changes})


def consumer(name: str, **changes: Any) -> Consumer:
    return Consumer(**{"name": name, "ipe": MILLION, **changes})


class Watched:
    """A simulation of one query with its log and metrics."""

    def __init__(
        self,
        query: QueryGraph,
        mips: float = AMPLE_MIPS,
        *,
        elsewhere: tuple[str, ...] = (),
        link: Link | None = None,
        **changes: Any,
    ) -> None:
        self.log, self.latency, self.throughput = Log(), Latency(), Throughput([query])
        placement = {name: "b" if name in elsewhere else "a" for name in query.vertices}
        links = {} if link is None else {("a", "b"): link, ("b", "a"): link}
        self.simulation = Simulation(
            [query],
            [SimulatedVm("a", mips), SimulatedVm("b", mips)],
            placement,
            interval_s=changes.pop("interval_s", 1.0),
            links=links,
            calculators=[self.log, self.latency, self.throughput],
            **changes,
        )

    def processed(self, vertex: str) -> list[float]:
        return [e.events for e in self.log.entries if e.vertex == vertex and e.happened == "processed"]


def chain(*vertices: Any, selectivity: float = 1.0) -> QueryGraph:
    """A chain of vertices; its last edge filters by ``selectivity``."""
    names = [vertex.name for vertex in vertices]
    edges = [Edge(origin, target) for origin, target in pairwise(names)]
    edges[-1] = Edge(edges[-1].origin, edges[-1].target, selectivity)
    return QueryGraph("q", vertices, edges)
