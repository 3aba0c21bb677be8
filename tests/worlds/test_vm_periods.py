"""A scheduler with a simple fleet: no VM enters a billing period that is not wanted or was not reserved before."""

from __future__ import annotations

import pytest

from tests.worlds.vm_periods import Life


@pytest.mark.parametrize("seeds", [range(1, 21), range(21, 41)], ids=str)
def test_no_vm_enters_a_period_that_is_not_wanted_and_reserved(seeds: range) -> None:
    lives = [Life(seed) for seed in seeds]
    for life in lives:
        life.live()
    assert sum(life.renewals for life in lives) > len(seeds)
