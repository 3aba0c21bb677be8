"""CEPSim's use case on real Spark through the gateway, measured and simulated at six loads from idle to overload.

    OMP_NUM_THREADS=1 .venv/bin/python bench/cepsim_on_spark.py --out cepsim.json      # about 20 minutes

What a micro-batch costs is measured first, in a Spark of its own and without a gateway. A gateway with real Spark
(``local[1]``) that is overloaded twofold then tells by how much all takes longer there: one factor. From these a knee
is simulated; the loads are parts of it. What a micro-batch took more or less than the fit says is chance: it is drawn
from what was left over, and 25 simulations are averaged. Latency and throughput of both are those of CEPSim's
equations 2 to 10, by the same calculators: a window's results are consumed when the sink shows them, and stand for the
readings that were due in it. Prints the tables of docs/results/cepsim.md.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import fmean
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
from engines.simulated.generators import Uniform
from engines.simulated.metrics import Entry, Happening, Latency, Throughput
from engines.simulated.placement import Vm
from engines.simulated.query import Consumer, Edge, Operator, Producer, Query, WindowedOperator, constant
from gateway.simulate.calibration import PAPER_MIPS
from gateway.simulate.microbatches import Cutting, EngineCosts, Play

PARTS = (0.1, 0.3, 0.6, 0.85, 1.0, 1.2)
WINDOWS = 6
"""So many are measured, after one that is not."""
SEEDS = 25
OVERLOAD = 2.0
COLD_WINDOWS = 3
"""So many windows of the overload are not looked at: Java compiles."""
WARM_WINDOWS = 3
KEEPS_UP = 0.98
SENSORS_MOST = 5000
DATA_S = 260.0
GIVE_UP_S = 290.0
_LEAST_INSTRUCTIONS = 1.0


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds: a micro-batch, a run in it, a reading, a result, until the next is planned, a sink's part.

    ``off_s`` is what the fit leaves over of each micro-batch.
    """

    batch_s: float
    run_s: float
    event_s: float
    result_s: float
    between_s: float
    commit_s: float
    off_s: tuple[float, ...] = (0.0,)

    def times(self, factor: float) -> Costs:
        """Return what the same takes on an engine that needs so much longer."""
        return replace(self, batch_s=factor * self.batch_s, run_s=factor * self.run_s, event_s=factor * self.event_s)

    def __str__(self) -> str:
        """Tell them."""
        told = ", ".join(f"{name} {value:.6g}" for name, value in asdict(self).items() if name != "off_s")
        return f"{told}; off by {np.sqrt(np.mean(np.square(self.off_s))):.3g} s (root mean square)"


@dataclass(frozen=True, slots=True)
class Outcome:
    """Eq. 6 and 10."""

    latency_s: float
    throughput_per_s: float


def fitted(batches: Sequence[Batch], commit_s: float) -> Costs:
    """Fit t = a + c runs + b readings + d results by least squares, none of them negative."""
    of = np.array([[1.0, one.runs, one.events, one.results] for one in batches])
    took_s = np.array([one.batch_s for one in batches])
    found, _ = nnls(of, took_s)
    batch_s, run_s, event_s, result_s = (float(one) for one in found)
    between_s = fmean(one.between_s for one in batches)
    return Costs(batch_s, run_s, event_s, result_s, between_s, commit_s, tuple((took_s - of @ found).tolist()))


def use_case(sensors: int, costs: Costs) -> Query:
    """Return the query; the filter bears what a reading costs, the store what a result does."""
    second = PAPER_MIPS * 1e6
    vertices = (
        Producer(name="spout", ipe=_LEAST_INSTRUCTIONS, generator=Uniform(READINGS_PER_S * sensors)),
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
    return Query("sensors", vertices, edges)


def measured_by(query: Query, consumed: Sequence[tuple[float, EventSet]]) -> Outcome:
    """Return latency and throughput of what a sink showed and when, all but the first."""
    began_s, ended_s = consumed[0][0], consumed[-1][0]
    latency, throughput = Latency(), Throughput([query], began_s)
    for number, (at_s, events) in enumerate(consumed[1:]):
        entry = Entry(number, at_s, "end", Happening.PROCESSED, events.count)
        for calculator in (latency, throughput):
            calculator.observe(entry, events.emitted(at_s))
    latency_s = latency.latency_s("end")
    assert latency_s is not None
    return Outcome(latency_s, throughput.per_s("end", ended_s))


def simulated(sensors: int, costs: Costs, windows: int = WINDOWS, skipped: int = 0) -> Outcome:
    """Simulate a load, often, and return means; ``skipped``: so many more windows at the beginning do not count."""
    query = use_case(sensors, costs)
    engine = EngineCosts(costs.batch_s, costs.run_s, costs.between_s, costs.commit_s, costs.off_s)
    found: list[Outcome] = []
    for seed in range(SEEDS):
        play = Play(query, Vm("host", PAPER_MIPS), engine, Cutting(LINGER_S, RUN_EVENTS_MAX, SLOT_S), seed)
        visible = play.run(windows + skipped + 1, 10 * WINDOW_S * (windows + skipped + 2))[skipped:]
        found.append(measured_by(query, [(one.at_s, one.closed.events) for one in visible]))
    return Outcome(fmean(one.latency_s for one in found), fmean(one.throughput_per_s for one in found))


def seen(sensors: int, costs: Costs, windows: Sequence[SeenWindow]) -> Outcome:
    """Return what a gateway showed; the readings that a window stands for are all that were due in it."""
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
    """Return the windows of each load that ``--out`` has."""
    windows: dict[str, list[dict[str, Any]]] = json.loads(path.read_text())["windows"]
    return {int(sensors): [SeenWindow(**one) for one in found] for sensors, found in windows.items()}


@contextmanager
def alone(lock: Path | None) -> Iterator[None]:
    """Wait until nobody else measures here."""
    if lock is None:
        yield
        return
    with lock.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Site:
    """Gateways one after the other over one Spark; ended by leaving it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._state_dir = folder / "spark"

    def __enter__(self) -> Site:
        return self

    def __exit__(self, *_: object) -> None:
        end_hosts(self._state_dir)

    def play(self, name: str, sensors: int, windows: int) -> list[SeenWindow]:
        """Run a gateway until so many windows and one are visible."""
        count = round(READINGS_PER_S * sensors * DATA_S)
        gateway = Gateway(self._folder / name, self._state_dir, name, sensors, count, self._seed)
        return gateway.play(windows, GIVE_UP_S)[: windows + 1]

    def slowness(self, sensors: int, costs: Costs) -> float:
        """Return how much longer all takes here than where it was calibrated: what a gateway adds, and today's machine.

        Args:
            sensors: an overload, so that throughput tells it.
            costs: calibrated.
        """
        windows = self.play("overload", sensors, COLD_WINDOWS + WARM_WINDOWS)[COLD_WINDOWS:]
        served = seen(sensors, costs, windows).throughput_per_s
        return simulated(sensors, costs, WARM_WINDOWS, COLD_WINDOWS).throughput_per_s / served


def calibrated(folder: Path, seed: int, lock: Path | None) -> tuple[Costs, list[Batch]]:
    """Measure what micro-batches cost on a Spark without a gateway."""
    with alone(lock):
        commit_s = time_commits(folder)
        batches = time_micro_batches(CALIBRATION_SENSORS, seed)
    return fitted(batches, commit_s), batches


def measured(folder: Path, costs: Costs, seed: int, lock: Path | None) -> tuple[Costs, dict[int, list[SeenWindow]]]:
    """Overload a gateway, correct the costs by what it serves then, and run one for each load.

    Returns:
        The corrected costs, and what the sinks of the loads showed.
    """
    found: dict[int, list[SeenWindow]] = {}
    with alone(lock), Site(folder, seed) as site:
        factor = site.slowness(round(OVERLOAD * knee(costs)), costs)
        costs = costs.times(factor)
        most = knee(costs)
        print(
            f"in a gateway micro-batches take {factor:.3f} times as long; it keeps up with {most} sensors", flush=True
        )
        for part in PARTS:
            sensors = max(1, round(part * most))
            found[sensors] = site.play(f"of-{sensors}", sensors, WINDOWS)
            print(f"{sensors} sensors: {asdict(found[sensors][-1])}", flush=True)
    return costs, found


def main() -> None:
    """Calibrate, measure, simulate, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--measured", type=Path, help="compare with what --out has from an earlier run")
    parser.add_argument("--out", type=Path, help="write all that was measured here, as JSON")
    parser.add_argument("--lock", type=Path, help="a file that is locked while Spark works")
    parser.add_argument("--seed", type=int, default=1, help="of the readings")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="cepsim-"))
    if chosen.measured:
        before = json.loads(chosen.measured.read_text())
        costs, batches = Costs(**before["costs"]), [Batch(**one) for one in before["batches"]]
        windows = read_windows(chosen.measured)
    else:
        costs, batches = calibrated(folder, chosen.seed, chosen.lock)
        print(costs, flush=True)
        costs, windows = measured(folder, costs, chosen.seed, chosen.lock)
    expected = {sensors: simulated(sensors, costs) for sensors in windows}
    results = {sensors: seen(sensors, costs, found) for sensors, found in windows.items()}
    print_table(expected, results)
    if chosen.out:
        document = {
            "costs": asdict(costs),
            "batches": [asdict(one) for one in batches],
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
