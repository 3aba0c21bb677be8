import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.histogram import Histogram

durations = st.floats(1e-4, 1e5)
weighted = st.lists(st.tuples(durations, st.integers(1, 50)), min_size=1, max_size=60)


def filled(values: list[tuple[float, int]]) -> Histogram:
    histogram = Histogram()
    for value_s, weight in values:
        histogram.add(value_s, weight)
    return histogram


@given(weighted, st.sampled_from([0.0, 0.5, 0.95, 1.0]))
def test_mean_is_exact_and_quantiles_are_within_one_percent(values: list[tuple[float, int]], q: float) -> None:
    histogram = filled(values)
    each = sorted(value_s for value_s, weight in values for _ in range(weight))
    assert histogram.mean_s == pytest.approx(math.fsum(each) / len(each))
    exact_s = each[max(0, math.ceil(q * len(each)) - 1)]
    assert histogram.quantile_s(q) == pytest.approx(exact_s, rel=0.01)


@given(weighted, weighted)
def test_merging_is_the_same_as_counting_all(one: list[tuple[float, int]], other: list[tuple[float, int]]) -> None:
    merged = filled(one)
    merged.merge(filled(other))
    together = filled(one + other)
    assert merged.weight == together.weight
    assert merged.mean_s == pytest.approx(together.mean_s)
    assert merged.bins() == together.bins()
    assert merged.quantile_s(0.95) == together.quantile_s(0.95)
    assert merged.largest_s == together.largest_s


def test_memory_is_bounded_whatever_is_counted() -> None:
    histogram = Histogram()
    for power in range(-200, 300):
        for step in range(7):
            histogram.add(10.0 ** (power / 20 + step / 7))
    assert len(histogram.bins()) <= 1397
    assert histogram.quantile_s(1.0) == histogram.largest_s


def test_an_empty_histogram_says_zero() -> None:
    assert (Histogram().mean_s, Histogram().quantile_s(0.5), Histogram().weight) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(("value_s", "weight"), [(-1.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, -1.0)])
def test_what_is_no_duration_is_refused(value_s: float, weight: float) -> None:
    with pytest.raises(ValueError, match="cannot count"):
        Histogram().add(value_s, weight)


def test_a_quantile_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        Histogram().quantile_s(95)
