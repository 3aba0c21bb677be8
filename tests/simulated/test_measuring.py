"""The measurements of a query on real Spark, and the line that is fitted to them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from engines.timing import Timed
from gateway.simulate.parameters.measuring import fitted
from gateway.simulate.parameters.profilingruns import ProfileError
from gateway.simulate.parameters.sentpart import SentPart


def test_the_line_and_its_errors_are_those_of_scipy() -> None:
    random = np.random.default_rng(3)
    sizes = [1, 250, 500, 1000, 2000, 4000] * 5
    timed = [Timed(n, 0.05 + n * 4e-4 + float(random.normal(0, 0.01))) for n in sizes]
    seen = fitted(timed, 900.0)
    line = stats.linregress([one.events for one in timed], [one.batch_s for one in timed])
    assert (seen.event_s, seen.batch_s) == pytest.approx((line.slope, line.intercept))
    assert (seen.event_error_s, seen.batch_error_s) == pytest.approx((line.stderr, line.intercept_stderr))
    assert seen.event_s == pytest.approx(4e-4, abs=4 * seen.event_error_s)
    assert seen.events_per_s == pytest.approx(1 / line.slope)
    assert seen.instructions_per_event == pytest.approx(line.slope * 2.5e9)
    assert (seen.batches, seen.events, seen.event_bytes) == (30, sum(sizes), 900.0)


def test_what_a_further_run_costs_is_told_apart() -> None:
    random = np.random.default_rng(4)
    shapes = [(n, runs) for n in (4, 500, 4000) for runs in (1, 4)] * 6
    timed = [Timed(n, 0.05 + n * 4e-4 + 0.02 * (runs - 1) + float(random.normal(0, 0.003)), runs) for n, runs in shapes]
    seen = fitted(timed, 900.0, 8)
    assert seen.batch_runs == 8
    assert seen.run_s == pytest.approx(0.02, abs=4 * seen.run_error_s)
    assert seen.batch_s == pytest.approx(0.05, abs=4 * seen.batch_error_s)
    assert seen.event_s == pytest.approx(4e-4, abs=4 * seen.event_error_s)
    assert 0 < seen.run_error_s < 0.002
    assert (seen.sent_part, seen.sent_from) == (None, None)
    crossed = fitted(timed, 900.0, 8, SentPart(0.21, "2 runs"))
    assert crossed == seen.model_copy(update={"sent_part": 0.21, "sent_from": "2 runs"})


def test_what_is_no_line_is_refused() -> None:
    with pytest.raises(ProfileError, match="two sizes"):
        fitted([Timed(5, 0.1)] * 6, 1.0)
    with pytest.raises(ProfileError, match="did not take more time"):
        fitted([Timed(1, 0.2), Timed(100, 0.1), Timed(200, 0.1)], 1.0)
    # A cost of nothing for each batch, seen through noise, is no negative one.
    assert fitted([Timed(100, 0.09), Timed(200, 0.2), Timed(300, 0.31)], 1.0).batch_s == 0.0
