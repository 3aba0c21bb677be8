"""When records came, from looks at how far a partition had grown."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gateway.sources.kafka.sightings import Sightings


def seen(*looks: tuple[int, float]) -> Sightings:
    sightings = Sightings()
    for end, wall_s in looks:
        sightings.note(end, wall_s)
    return sightings


def test_what_was_there_at_the_first_look_came_then_and_later_records_evenly() -> None:
    sightings = seen((10, 100.0), (14, 104.0))
    assert sightings.arrivals_s(8, 14).tolist() == [100.0, 100.0, 101.0, 102.0, 103.0, 104.0]


def test_after_a_pause_a_record_came_after_the_last_look_without_it() -> None:
    sightings = seen((10, 100.0), (10, 150.0), (10, 200.0), (11, 201.0))
    assert sightings.arrivals_s(10, 11).tolist() == [201.0]
    assert sightings.arrivals_s(9, 10).tolist() == [100.0]


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0.01, 10.0)), min_size=1, max_size=60),
    st.integers(0, 400),
    st.integers(1, 50),
)
def test_times_rise_lie_between_looks_and_what_is_needed_is_never_forgotten(
    steps: list[tuple[int, float]], begin: int, count: int
) -> None:
    looks = np.cumsum(np.array(steps, float), axis=0)
    sightings = seen(*((int(end), float(wall_s)) for end, wall_s in looks))
    before = sightings.arrivals_s(begin, begin + count)
    assert np.all(np.diff(before) >= 0)
    assert looks[0, 1] <= before[0]
    assert before[-1] <= looks[-1, 1]
    for offset, came_s in zip(range(begin, begin + count), before, strict=True):
        there = looks[looks[:, 0] > offset]
        if len(there):
            assert came_s <= there[0, 1]
    sightings.forget(begin)
    assert sightings.arrivals_s(begin, begin + count).tolist() == before.tolist()


def test_of_very_many_looks_some_are_forgotten() -> None:
    sightings = seen(*((number, float(number)) for number in range(10_000)))
    assert abs(sightings.arrivals_s(5_000, 5_001)[0] - 5_001) <= 4
