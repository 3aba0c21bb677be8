"""Sketches of times: exact counts and means, fair samples, and events that come together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.sketch import SAMPLE_MOST, GapSketch, TimesSketch, pooled

TIMES = st.lists(st.floats(0, 1e4), min_size=1, max_size=200)


@given(TIMES, st.data())
def test_it_does_not_matter_in_which_parts_times_come(times: list[float], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(times)))
    sketch = TimesSketch(seed=3)
    for part in (times[:cut], times[cut:]):
        sketch.add(np.array(part, dtype=np.float64))
    seen = sketch.take()
    assert seen is not None
    assert seen.count == len(times)
    assert seen.mean_s == pytest.approx(np.mean(times))
    assert len(seen.sample) == min(len(times), SAMPLE_MOST)
    for each in seen.sample:
        assert min(abs(each - time) for time in times) <= 1e-3 * each
    assert sketch.take() is None, "it begins anew"


def test_each_time_is_as_likely_in_the_sample_as_any_other() -> None:
    counts = np.zeros(200)
    for seed in range(400):
        sketch = TimesSketch(seed)
        for part in np.split(np.arange(200.0), 4):
            sketch.add(part)
        seen = sketch.take()
        assert seen is not None
        counts[np.array(seen.sample).astype(int)] += 1
    quarters = counts.reshape(4, 50).sum(axis=1) / counts.sum()
    assert quarters == pytest.approx([0.25] * 4, abs=0.02)


def test_gaps_go_on_from_one_read_to_the_next() -> None:
    sketch = GapSketch(seed=1)
    for arrivals in ([1.0, 3.0], [], [3.5, 6.0]):
        sketch.add(np.array(arrivals))
    seen = sketch.take()
    assert seen is not None
    assert sorted(seen.sample) == [0.5, 2.0, 2.5]
    sketch.add(np.array([10.0]))
    later = sketch.take()
    assert later is not None
    assert later.sample == (4.0,), "the first gap of a slot begins in the one before"


def test_events_that_come_together_have_gaps_of_zero() -> None:
    sketch = GapSketch(seed=1)
    sketch.add(np.repeat(np.arange(20.0), 5))
    seen = sketch.take()
    assert seen is not None
    assert seen.count == 99
    assert seen.mean_s == pytest.approx(19 / 99)
    assert np.mean(np.array(seen.sample) == 0.0) == pytest.approx(80 / 99, abs=0.2)


def test_an_event_that_is_read_late_counts_as_if_it_came_with_the_last_one() -> None:
    sketch = GapSketch(seed=1)
    for arrivals in ([5.0, 4.0], [3.0], [6.0]):
        sketch.add(np.array(arrivals))
    seen = sketch.take()
    assert seen is not None
    assert sorted(seen.sample) == [0.0, 1.0, 1.0]


def test_slots_are_pooled_in_proportion_to_their_counts() -> None:
    many, few = TimesSketch(seed=1), TimesSketch(seed=2)
    many.add(np.full(900, 1.0))
    few.add(np.full(100, 4.0))
    slots = [seen for sketch in (many, few) if (seen := sketch.take()) is not None]
    assert np.mean(pooled(slots, 200) == 4.0) == pytest.approx(0.1, abs=0.01)
