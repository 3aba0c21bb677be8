"""CEPSim's use case on real Spark through the gateway, measured and simulated at six loads from idle to overload.

    OMP_NUM_THREADS=1 .venv/bin/python bench/cepsim_on_spark.py --out cepsim.json      # about 16 minutes

First the cost of a micro-batch is measured, in a separate Spark and without a gateway. A knee is simulated from this
cost, and the loads are parts of this knee. Then each load is simulated 25 times, since the part of a micro-batch's
time that the costs do not explain is random. A gateway with real Spark (``local[1]``) runs the load, too. Latency and
throughput of both follow CEPSim's equations 2 to 10 and come from the same calculators. A window's results are
consumed when the sink shows them, and they represent the readings that were due in the window. The program prints the
tables of docs/results/cepsim.md. ``--calibration FILE`` uses costs from an earlier execution.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cepsim_spark import (
    CALIBRATION_SENSORS,
    LINGER_S,
    READINGS_PER_S,
    RUN_EVENTS_MAX,
    SELECTIVITY,
    SLOT_S,
    WINDOW_S,
    Batch,
    Gateway,
    SeenWindow,
    end_hosts,
    time_commits,
    time_micro_batches,
)
from scipy.optimize import nnls

from engines.simulated.events import EventSet
from engines.simulated.generators import ConstantRate
from engines.simulated.metrics import Happening, Latency, MetricsEntry, Throughput
from engines.simulated.placement import SimulatedVm
from engines.simulated.query import Consumer, Edge, Operator, Producer, QueryGraph, WindowedOperator, constant
from gateway.simulate.parameters.calibration import PAPER_MIPS
from gateway.simulate.runs.microbatches import Cutting, EngineCosts, Play

PARTS = (0.1, 0.3, 0.6, 0.85, 1.0, 1.2)
WINDOWS = 6
"""How many are measured, after one that does not count."""
WARM_WINDOWS = 2
SEEDS = 25
LOADS_TOGETHER = 2
"""How many are measured under one lock."""
KEEPS_UP = 0.98
SENSORS_MOST = 5000
DATA_S = 260.0
GIVE_UP_S = 290.0
_LEAST_INSTRUCTIONS = 1.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in seconds: of a micro-batch, a run in it, a reading, a result, the time to the next plan, a sink's part.

    ``off_s`` is the root mean square of the fit's residuals.
    """

    batch_s: float
    run_s: float
    event_s: float
    result_s: float
    between_s: float
    commit_s: float
    off_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """The metrics of eq. 6 and 10."""

    latency_s: float
    throughput_per_s: float


def fitted(batches: Sequence[Batch], commit_s: float) -> Costs:
    """Fit t = a + c runs + b readings + d results by least squares, none of them negative."""
    of = np.array([[1.0, one.runs, one.events, one.results] for one in batches])
    took_s = np.array([one.batch_s for one in batches])
    found, distance = nnls(of, took_s)
    batch_s, run_s, event_s, result_s = (float(one) for one in found)
    between_s = statistics.fmean(one.between_s for one in batches)
    return Costs(batch_s, run_s, event_s, result_s, between_s, commit_s, float(distance / np.sqrt(len(batches))))


def use_case(sensors: int, costs: Costs) -> QueryGraph:
    """Return the query; the filter has the cost of a reading, the store that of a result."""
    second = PAPER_MIPS * 1e6
    vertices = (
        Producer(name="spout", ipe=_LEAST_INSTRUCTIONS, generator=ConstantRate(READINGS_PER_S * sensors)),
        Operator(name="outlier", ipe=costs.event_s * second),
        WindowedOperator(
            name="average",
            ipe=_LEAST_INSTRUCTIONS,
            window_s=WINDOW_S,
            advance_s=WINDOW_S,
            function=constant(sensors),
        ),
        Operator(name="store", ipe=max(_LEAST_INSTRUCTIONS, costs.result_s * second)),
        Consumer(name="end", ipe=_LEAST_INSTRUCTIONS),
    )
    edges = (
        Edge("spout", "outlier"),
        Edge("outlier", "average", SELECTIVITY),
        Edge("average", "store"),
        Edge("store", "end"),
    )
    return QueryGraph("sensors", vertices, edges)


def measured_by(query: QueryGraph, consumed: Sequence[tuple[float, EventSet]]) -> Outcome:
    """Return latency and throughput of a sink's windows, with the time of each, without the first."""
    began_s, ended_s = consumed[0][0], consumed[-1][0]
    latency, throughput = Latency(), Throughput([query], began_s)
    for number, (at_s, events) in enumerate(consumed[1:]):
        entry = MetricsEntry(number, at_s, "end", Happening.PROCESSED, events.count)
        for calculator in (latency, throughput):
            calculator.observe(entry, events.emitted(at_s))
    latency_s = latency.latency_s("end")
    assert latency_s is not None
    return Outcome(latency_s, throughput.per_s("end", ended_s))


def simulated(sensors: int, costs: Costs) -> Outcome:
    """Simulate a load, once for each seed, and return means."""
    query = use_case(sensors, costs)
    engine = EngineCosts(costs.batch_s, costs.run_s, costs.between_s, costs.commit_s, costs.off_s)
    found: list[Outcome] = []
    for seed in range(SEEDS):
        play = Play(query, SimulatedVm("host", PAPER_MIPS), engine, Cutting(LINGER_S, RUN_EVENTS_MAX, SLOT_S), seed)
        visible = play.run(WINDOWS + 1, 10 * WINDOW_S * (WINDOWS + 2))
        found.append(measured_by(query, [(one.at_s, one.closed.events) for one in visible]))
    return Outcome(
        statistics.fmean(one.latency_s for one in found), statistics.fmean(one.throughput_per_s for one in found)
    )


def seen(sensors: int, costs: Costs, windows: Sequence[SeenWindow]) -> Outcome:
    """Return a gateway's metrics; a window stands for all readings that were due in it."""
    due = READINGS_PER_S * sensors * WINDOW_S
    consumed = [
        (one.visible_s, EventSet(one.results, (one.number + 0.5) * WINDOW_S, 0.0, {"spout": due})) for one in windows
    ]
    return measured_by(use_case(sensors, costs), consumed)


def knee(costs: Costs) -> int:
    """Return the most sensors with which the simulated gateway keeps up."""
    low, high = 1, SENSORS_MOST
    while high - low > 1:
        middle = (low + high) // 2
        kept = simulated(middle, costs).throughput_per_s >= KEEPS_UP * READINGS_PER_S * middle
        low, high = (middle, high) if kept else (low, middle)
    return low


def read_windows(path: Path) -> dict[int, list[SeenWindow]]:
    """Return the windows of each load from a file of ``--out``."""
    windows: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())["windows"]
    return {int(sensors): [SeenWindow(**one) for one in found] for sensors, found in windows.items()}


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Wait until no other benchmark measures here."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def measured(loads: Sequence[int], folder: Path, seed: int, lock: Path | None) -> dict[int, list[SeenWindow]]:
    """Run a gateway for each load, after one that only warms Spark up, and return the windows in their sinks."""
    state_dir = folder / "spark"

    def play(name: str, sensors: int, windows: int) -> list[SeenWindow]:
        count = round(READINGS_PER_S * sensors * DATA_S)
        gateway = Gateway(folder / name, state_dir, name, sensors, count, seed)
        return gateway.play(windows, GIVE_UP_S)

    found: dict[int, list[SeenWindow]] = {}
    try:
        for first in range(0, len(loads), LOADS_TOGETHER):
            with alone(lock):
                if not found:
                    play("warm", loads[len(loads) // 2], WARM_WINDOWS)
                for sensors in loads[first : first + LOADS_TOGETHER]:
                    found[sensors] = play(f"of-{sensors}", sensors, WINDOWS)[: WINDOWS + 1]
                    print(f"{sensors} sensors: {asdict(found[sensors][-1])}", flush=True)
    finally:
        end_hosts(state_dir)
    return found


def main() -> None:
    """Calibrate, simulate, measure, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calibration", type=Path, help="costs that were measured before: a file of --out")
    parser.add_argument("--measured", type=Path, help="compare with the measurements in an earlier file of --out")
    parser.add_argument("--out", type=Path, help="write all measurements to this file, as JSON")
    parser.add_argument("--lock", type=Path, help="a file that is locked while Spark works")
    parser.add_argument("--only-simulate", action="store_true", help="run no gateway")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the readings")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cepsim-"))
    batches: list[Batch] = []
    if chosen.calibration:
        costs = Costs(**json.loads(chosen.calibration.read_text())["costs"])
    else:
        with alone(chosen.lock):
            commit_s = time_commits(folder)
            batches = time_micro_batches(CALIBRATION_SENSORS, chosen.seed)
        costs = fitted(batches, commit_s)
    most = knee(costs)
    if chosen.out:
        chosen.out.write_text(json.dumps({"costs": asdict(costs), "batches": [asdict(one) for one in batches]}))
    print(f"{costs}\nsimulated: keeps up with {most} sensors", flush=True)
    earlier = read_windows(chosen.measured) if chosen.measured else {}
    loads = list(earlier) or [max(1, round(part * most)) for part in PARTS]
    expected = {sensors: simulated(sensors, costs) for sensors in loads}
    if chosen.measured:
        windows = earlier
    else:
        windows = {} if chosen.only_simulate else measured(loads, folder, chosen.seed, chosen.lock)
    results = {sensors: seen(sensors, costs, found) for sensors, found in windows.items()}
    print_table(expected, results)
    if chosen.out:
        document = {
            "costs": asdict(costs),
            "batches": [asdict(one) for one in batches],
            "simulated": {sensors: asdict(one) for sensors, one in expected.items()},
            "measured": {sensors: asdict(one) for sensors, one in results.items()},
            "windows": {sensors: [asdict(one) for one in found] for sensors, found in windows.items()},
        }
        chosen.out.write_text(json.dumps(document, indent=1))


def print_table(expected: dict[int, Outcome], results: dict[int, Outcome]) -> None:
    """Print one row for each load, and both knees: what is served at the highest load."""
    print("| sensors | offered /s | latency measured | simulated | error | throughput measured | simulated | error |")
    print("| ---: " * 8 + "|")
    for sensors, one in expected.items():
        real = results.get(sensors)
        if real is None:
            print(f"| {sensors} | {READINGS_PER_S * sensors:,.0f} | | {one.latency_s:.2f} s | | | "
                  f"{one.throughput_per_s:,.0f} | |")  # fmt: skip
            continue
        print(
            f"| {sensors} | {READINGS_PER_S * sensors:,.0f} "
            f"| {real.latency_s:.2f} s | {one.latency_s:.2f} s | {one.latency_s / real.latency_s - 1:+.1%} "
            f"| {real.throughput_per_s:,.0f} | {one.throughput_per_s:,.0f} "
            f"| {one.throughput_per_s / real.throughput_per_s - 1:+.1%} |"
        )
    if results:
        last = max(results)
        served, played = results[last].throughput_per_s, expected[last].throughput_per_s
        print(f"knee: {served / READINGS_PER_S:.0f} sensors measured, {played / READINGS_PER_S:.0f} simulated "
              f"({played / served - 1:+.1%})")  # fmt: skip


if __name__ == "__main__":
    main()
