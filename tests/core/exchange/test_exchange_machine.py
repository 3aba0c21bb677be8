"""Whatever happens, in whatever order: each run is released once and in order, and the exchange comes to rest."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.core.exchange import instructions as ins
from tests.core.exchange.exchange_lives import LANES, Life


@settings(max_examples=300)
@given(seed=st.integers(0, 1 << 32), steps=st.integers(0, 250), bounded=st.booleans())
def test_whatever_happens_each_run_is_released_once_and_in_order(seed: int, steps: int, bounded: bool) -> None:
    life = Life(seed)
    life.live(steps, bounded=bounded)
    life.end()


def test_such_lives_have_everything_in_them() -> None:
    """Otherwise the test above would show little."""
    told: list[Any] = []
    for seed in range(60):
        life = Life(seed)
        life.live(200)
        told += life.told
    seen = {type(each) for each in told}
    kinds = {ins.Pack, ins.Send, ins.Dispatched, ins.Done, ins.Release, ins.FailLane, ins.Reopen, ins.AskedAgain}
    assert kinds | {ins.Moved, ins.RunRecalled} == seen
    done = [each for each in told if isinstance(each, ins.Done)]
    assert {each.lane for each in done} == set(LANES)
    assert any(len(each.runs) > 1 for each in done)
    assert any(each.isolated for each in done)
    assert any(each.runs and not each.counts for each in done)
    assert any(each.late for each in told if isinstance(each, ins.Release))
    assert any(each.runs for each in told if isinstance(each, ins.Moved))
    assert any(each.attempt > 2 for each in told if isinstance(each, ins.Pack))
