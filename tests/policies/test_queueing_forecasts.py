from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.queueing.forecasts import naive, seasonal_naive

values = st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=40)


@given(values, st.integers(1, 9))
def test_naive_forecasts_repeat_the_last_value_or_season(series: list[float], ahead: int) -> None:
    assert naive(series, ahead).tolist() == [series[-1]] * ahead
    assert seasonal_naive(series, ahead, 1).tolist() == naive(series, ahead).tolist()
    assert seasonal_naive(series, ahead, 3).tolist() == [series[-3:][step % 3] for step in range(ahead)]


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="2 slices are too few"):
        seasonal_naive([1.0, 2.0], 1, 3)
    with pytest.raises(ValueError, match="makes no sense"):
        naive([1.0], 0)
    with pytest.raises(ValueError, match="not finite"):
        naive([float("inf")], 1)
