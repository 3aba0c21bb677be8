"""The computations of bench/cepsim_on_spark.py, without Spark."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("cepsim_on_spark")


@pytest.fixture(scope="module")
def spark() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("cepsim_spark")


def test_costs_are_found_again_in_times_made_of_them(bench: ModuleType) -> None:
    draw = np.random.default_rng(1)
    batches = [
        bench.Batch(
            runs, events, results, 0.2 + 0.1 * runs + 3e-4 * events + 2e-5 * results, 0.1 + draw.normal(0, 0.01)
        )
        for runs in (1, 2, 3)
        for events in (100, 1000, 6000)
        for results in (0, 150, 300)
    ]
    costs = bench.fitted(batches, 0.02)
    assert (costs.batch_s, costs.run_s, costs.event_s, costs.result_s) == pytest.approx((0.2, 0.1, 3e-4, 2e-5))
    assert costs.between_s == pytest.approx(0.1, abs=0.01)
    assert costs.off_s < 1e-9


def test_readings_go_on_where_they_were_left_and_one_in_twenty_is_an_outlier(spark: ModuleType) -> None:
    whole, rest = spark.readings(40, 30_000, 1), spark.readings(40, 100, 1, 29_900)
    assert whole.slice(29_900).select(["sensor", "at"]) == rest.select(["sensor", "at"])
    counts = spark.usual_in_windows(whole)
    assert list(counts) == [0, 1, 2, 3, 4]
    assert sum(counts.values()) == pytest.approx(0.95 * 30_000, abs=4 * (30_000 * 0.05 * 0.95) ** 0.5)


def test_a_window_is_known_by_when_it_opens(spark: ModuleType) -> None:
    assert spark.window_number("2026-01-01T00:00:45.000000Z") == 3


def test_latency_and_throughput_are_those_of_the_equations(bench: ModuleType) -> None:
    costs = bench.Costs(0.2, 0.1, 3e-4, 0.0, 0.1, 0.02)
    visible_s = [17.0, 33.0, 49.0]
    windows = [bench.SeenWindow(number, at_s, 8, 1140) for number, at_s in enumerate(visible_s)]
    outcome = bench.seen(8, costs, windows)
    assert outcome.latency_s == pytest.approx((33 - 22.5 + 49 - 37.5) / 2)
    assert outcome.throughput_per_s == pytest.approx(2 * 15 * 80 / 32)


def test_what_is_simulated_and_what_is_seen_are_measured_alike(bench: ModuleType) -> None:
    costs = bench.Costs(0.2, 0.1, 3e-4, 1e-5, 0.1, 0.02)
    engine = bench.EngineCosts(costs.batch_s, costs.run_s, costs.between_s, costs.commit_s)
    cutting = bench.Cutting(bench.LINGER_S, bench.RUN_EVENTS_MAX, bench.SLOT_S)
    play = bench.Play(bench.use_case(200, costs), bench.SimulatedVm("host", bench.PAPER_MIPS), engine, cutting)
    windows = [bench.SeenWindow(one.closed.number, one.at_s, 200, 0) for one in play.run(bench.WINDOWS + 1, 1e4)]
    alike, outcome = bench.seen(200, costs, windows), bench.simulated(200, costs)
    assert alike.latency_s == pytest.approx(outcome.latency_s)
    assert alike.throughput_per_s == pytest.approx(outcome.throughput_per_s)


def test_what_takes_longer_by_chance_is_late_on_average(bench: ModuleType) -> None:
    even = bench.Costs(0.2, 0.1, 3e-4, 1e-5, 0.1, 0.02)
    uneven = bench.Costs(0.2, 0.1, 3e-4, 1e-5, 0.1, 0.02, 0.3)
    sensors = round(0.99 * bench.knee(even))
    late = bench.simulated(sensors, uneven)
    assert late.latency_s > bench.simulated(sensors, even).latency_s
    assert late == bench.simulated(sensors, uneven), "seeds decide what is chance"


def test_the_knee_is_where_the_simulated_gateway_falls_behind(bench: ModuleType) -> None:
    costs = bench.Costs(0.2, 0.1, 3e-4, 1e-5, 0.1, 0.02)
    most = bench.knee(costs)
    assert bench.simulated(round(0.9 * most), costs).throughput_per_s == pytest.approx(9 * most, rel=0.03)
    assert bench.simulated(round(1.3 * most), costs).throughput_per_s < 11 * most
