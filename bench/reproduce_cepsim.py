"""CEPSim's use case (Higashino et al., CEPSim, section V): latency and throughput over the number of sensors.

Readings are filtered (5 % are outliers), averaged over windows of 15 s, and the averages stored. Prints the table of
docs/results/cepsim.md.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from engines.simulated.generators import ConstantRate
from engines.simulated.metrics import Latency, Throughput
from engines.simulated.placement import SimulatedVm, SpreadQueries
from engines.simulated.query import Consumer, Edge, Operator, Producer, QueryGraph, WindowedOperator, constant
from engines.simulated.scheduling import ProportionalToIpe, SchedulingStrategy, WorkConserving
from engines.simulated.simulation import Simulation

SENSORS = (1, 10, 100, 500, 1000, 1250, 1500, 1600, 1700, 1750, 2000)
READINGS_PER_S = 10.0
SELECTIVITY = 0.95
WINDOW_S = 15.0
MIPS = 2500.0
INTERVAL_S = 0.01
WINDOWS = 20
WEIGHTS = {"spout": 100.0, "outlier": 100.0, "average": 100.0}
"""How many events these may process for each event of the store: the authors' program uses the same weights."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The metrics of a run; throughput in readings per second (eq. 10)."""

    latency_s: float
    throughput_per_s: float


def use_case(sensors: int) -> QueryGraph:
    """Return Figure 10 for this many sensors: a window emits one average for each."""
    vertices = (
        Producer(name="spout", ipe=1_000, generator=ConstantRate(READINGS_PER_S * sensors)),
        Operator(name="outlier", ipe=18_000),
        WindowedOperator(name="average", ipe=18_000, window_s=WINDOW_S, advance_s=WINDOW_S, function=constant(sensors)),
        Operator(name="store", ipe=11_000_000),
        Consumer(name="end", ipe=1_000),
    )
    edges = (
        Edge("spout", "outlier"),
        Edge("outlier", "average", SELECTIVITY),
        Edge("average", "store"),
        Edge("store", "end"),
    )
    return QueryGraph("sensors", vertices, edges)


def play(sensors: int, strategy: SchedulingStrategy, windows: int = WINDOWS) -> Outcome:
    """Simulate windows on one VM and measure all but the first; each from its closing to the next closing."""
    query, vms = use_case(sensors), [SimulatedVm("worker", MIPS)]
    since_s, until_s = 2 * WINDOW_S, (windows + 1) * WINDOW_S
    latency, throughput = Latency(since_s), Throughput([query], since_s)
    simulation = Simulation(
        [query],
        vms,
        SpreadQueries().place([query], vms),
        interval_s=INTERVAL_S,
        scheduling=lambda _: strategy,
        calculators=[latency, throughput],
    )
    simulation.run(until_s)
    measured_s = latency.latency_s("end")
    if measured_s is None:
        raise RuntimeError(f"nothing was consumed in {windows} windows: two are needed at least")
    return Outcome(measured_s, throughput.per_s("end", until_s))


def main() -> None:
    """Print the table; an argument gives the number of simulated windows."""
    windows = int(sys.argv[1]) if len(sys.argv) > 1 else WINDOWS
    print(f"{'sensors':>7} {'offered/s':>10} | {'weighted, as the authors':>24} | {'work-conserving':>24}")
    for sensors in SENSORS:
        outcomes = [play(sensors, strategy, windows) for strategy in (ProportionalToIpe(WEIGHTS), WorkConserving())]
        measured = " | ".join(f"{o.latency_s:>8.2f} s {o.throughput_per_s:>9,.0f} /s " for o in outcomes)
        print(f"{sensors:>7} {READINGS_PER_S * sensors:>10,.0f} | {measured}", flush=True)


if __name__ == "__main__":
    main()
