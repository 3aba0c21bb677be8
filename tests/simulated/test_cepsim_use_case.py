"""The paper's use case, compared with a computation from its settings; bench/reproduce_cepsim.py has the curve."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from engines.simulated.scheduling import ProportionalToIpe, WorkConserving

BENCH = Path(__file__).parents[2] / "bench" / "reproduce_cepsim.py"
PARTS = 100 * (1_000 + 18_000 + 18_000) + 11_000_000 + 1_000
STORE_PER_S = 2500e6 / PARTS
FILTER_PER_S = 100 * 2500e6 / PARTS


@pytest.fixture(scope="module")
def bench() -> dict[str, Any]:
    return runpy.run_path(str(BENCH))


@pytest.mark.parametrize("sensors", [1, 1000])
def test_below_the_knee_a_reading_waits_for_its_window_and_for_the_store(bench: dict[str, Any], sensors: int) -> None:
    outcome = bench["play"](sensors, ProportionalToIpe(bench["WEIGHTS"]), 4)
    assert outcome.latency_s == pytest.approx(7.5 + sensors / STORE_PER_S / 2, rel=0.002)
    assert outcome.throughput_per_s == pytest.approx(10 * sensors)


def test_the_knee_lies_before_1750_sensors(bench: dict[str, Any]) -> None:
    below, above = (bench["play"](sensors, ProportionalToIpe(bench["WEIGHTS"]), 4) for sensors in (1700, 1750))
    assert below.throughput_per_s == pytest.approx(17_000)
    assert above.throughput_per_s == pytest.approx(FILTER_PER_S, rel=0.001)
    assert above.latency_s > 7.5 + 1750 / STORE_PER_S / 2 + 0.5


def test_a_strategy_that_wastes_nothing_has_room_for_1750(bench: dict[str, Any]) -> None:
    assert bench["play"](1750, WorkConserving(), 3).throughput_per_s == pytest.approx(17_500)
