"""The simulated server compared with Erlang C."""

from __future__ import annotations

import math
from statistics import fmean, stdev

import numpy as np
import pytest

from engines.simulated.server import Server

SEEDS = range(30)
WARM_UP, JOBS = 2_000, 10_000
T_99 = 2.756
"""Student's t for 99 % and 29 degrees of freedom."""


def erlang_c(cores: int, load: float) -> float:
    """The probability that a job has to wait, for an offered load in Erlang."""
    waits = load**cores / math.factorial(cores) * cores / (cores - load)
    return waits / (sum(load**k / math.factorial(k) for k in range(cores)) + waits)


def waits(cores: int, utilisation: float, seed: int) -> tuple[float, float]:
    """Mean wait in service times, and the part of the jobs that waited at all."""
    random = np.random.default_rng(seed)
    arrivals = np.cumsum(random.exponential(1 / (utilisation * cores), WARM_UP + JOBS))
    work = random.exponential(1.0, WARM_UP + JOBS)
    server = Server(cores)
    waited = [server.serve(at, needs).begun_s - at for at, needs in zip(arrivals, work, strict=True)][WARM_UP:]
    return fmean(waited), fmean(wait > 0 for wait in waited)


@pytest.mark.parametrize(("cores", "utilisation"), [(1, 0.5), (1, 0.8), (2, 0.7), (4, 0.8), (10, 0.9)])
def test_waits_agree_with_erlang_c(cores: int, utilisation: float) -> None:
    probability = erlang_c(cores, utilisation * cores)
    expected = (probability / (cores - utilisation * cores), probability)
    seen = [waits(cores, utilisation, seed) for seed in SEEDS]
    for value, samples in zip(expected, zip(*seen, strict=True), strict=True):
        half_width = T_99 * stdev(samples) / math.sqrt(len(SEEDS))
        assert abs(fmean(samples) - value) <= half_width
        assert half_width < 0.15 * value, "so few jobs say nothing"


def test_a_server_that_is_a_little_slower_is_noticed() -> None:
    """The interval is narrow enough to distinguish 80 % from 83 % of utilisation."""
    expected = erlang_c(4, 0.8 * 4) / (4 - 0.8 * 4)
    samples = [waits(4, 0.83, seed)[0] for seed in SEEDS]
    assert abs(fmean(samples) - expected) > T_99 * stdev(samples) / math.sqrt(len(SEEDS))


def test_jobs_are_taken_in_order() -> None:
    server = Server(2)
    done = [server.serve(at, needs).done_s for at, needs in [(0, 5), (1, 1), (1, 1), (1.5, 1)]]
    assert done == [5, 2, 3, 4]
    with pytest.raises(ValueError, match="cannot follow"):
        server.serve(1.0, 1.0)
    with pytest.raises(ValueError, match="core"):
        Server(0)
