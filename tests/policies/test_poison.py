"""The share of bad rows at which a query counts as broken, compared with a plain list of all rows."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from policies.failures.poison import WINDOW_ROWS, BadRows

RUNS = st.lists(st.tuples(st.integers(1, 700), st.floats(0, 0.4), st.randoms()), max_size=12)


@given(RUNS, st.sampled_from([0.0, 0.001, 0.1, 0.2, 1.0]))
def test_it_trips_exactly_when_a_thousand_rows_in_a_row_hold_too_many(
    runs: list[tuple[int, float, Random]], most: float
) -> None:
    window, judged = BadRows(most), list[bool]()
    for rows, part, chance in runs:
        verdicts = [chance.random() < part for _ in range(rows)]
        after = judged + verdicts
        worst = max(sum(after[max(0, end - WINDOW_ROWS) : end]) for end in range(len(judged) + 1, len(after) + 1))
        bad = [place for place, is_bad in enumerate(verdicts) if is_bad]
        assert window.too_many(bad) == (bool(bad) and worst > round(most * WINDOW_ROWS))
        if not window.too_many(bad):
            window.add(rows, bad)
            judged = after


def test_a_cluster_at_the_very_beginning_is_no_broken_query() -> None:
    window = BadRows(0.2)
    assert not window.too_many(range(200))
    assert window.too_many(range(201))


def test_what_is_asked_is_not_noted() -> None:
    window = BadRows(0.2)
    for _ in range(3):
        assert not window.too_many(range(150))
    window.add(150, range(150))
    assert window.too_many(range(51))
    window.add(1000, ())
    assert not window.too_many(range(200))


def test_all_rows_may_be_allowed_to_fail() -> None:
    window = BadRows(1.0)
    for _ in range(5):
        assert not window.too_many(range(900))
        window.add(900, range(900))
