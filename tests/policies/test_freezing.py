"""When no VM is launched or given back."""

from __future__ import annotations

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.signals import QuerySlot, SlotEnded, VmReady
from policies.vms.freezing import FreezeWindow, frozen_until
from policies.vms.vm import VmState
from tests.policies.policy_data import Checked, scheduler_settings, states

HOUR = 3600
NIGHT = FreezeWindow(days=(4, 5), begin_s=22 * HOUR, end_s=6 * HOUR, zone="Europe/Berlin")


def at(text: str, zone: str = "Europe/Berlin") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("now", "end"),
    [
        ("2026-11-27 21:59:59", None),  # a Friday
        ("2026-11-27 22:00:00", "2026-11-28 06:00:00"),
        ("2026-11-28 05:59:59", "2026-11-28 06:00:00"),
        ("2026-11-28 06:00:00", None),
        ("2026-11-29 03:00:00", "2026-11-29 06:00:00"),  # it began on Saturday
        ("2026-11-29 23:00:00", None),
        ("2026-10-25 02:30:00", "2026-10-25 06:00:00"),  # the night with one hour more
    ],
)
def test_a_window_over_midnight(now: str, end: str | None) -> None:
    assert NIGHT.end_after(at(now)) == (None if end is None else at(end))


@given(
    st.lists(st.integers(0, 6), min_size=1, unique=True),
    st.integers(0, 86_399),
    st.integers(0, 86_400),
    st.integers(0, 4 * 7 * 86_400),
)
def test_in_utc_seconds_of_the_week_count(days: list[int], begin_s: int, end_s: int, later_s: int) -> None:
    window = FreezeWindow(days=tuple(days), begin_s=begin_s, end_s=end_s)
    monday_s = datetime(2026, 1, 5, tzinfo=UTC).timestamp()
    length_s = (end_s - begin_s) % 86_400 or 86_400
    ends = {d * 86_400 + begin_s + length_s for d in days}
    second = later_s % (7 * 86_400)
    left = [(end - second) % (7 * 86_400) for end in ends]
    found = window.end_after(monday_s + later_s)
    inside = [s for s in left if 0 < s <= length_s]
    assert (found is None) == (not inside)
    if found is not None:
        assert found - (monday_s + later_s) in inside


def test_of_several_windows_the_last_end_counts() -> None:
    windows = (NIGHT, FreezeWindow(days=(5,), begin_s=0, end_s=12 * HOUR, zone="Europe/Berlin"))
    assert frozen_until(windows, at("2026-11-28 03:00:00")) == at("2026-11-28 12:00:00")
    assert frozen_until((), 0.0) is None


ALWAYS = FreezeWindow(days=tuple(range(7)), begin_s=0, end_s=0)


def test_no_vm_is_launched_or_given_back_and_shares_still_change() -> None:
    checked = Checked(scheduler_settings(freezes=(ALWAYS,)))
    assert [checked.slot(9.0) for _ in range(5)] == [[]] * 5
    assert "no VM is launched or terminated before 1970-01-02 00:00 UTC" in checked.scheduler.last_decisions[0].verdict

    checked = Checked(scheduler_settings(freezes=(FreezeWindow(days=(3,), begin_s=110, end_s=400),)))
    for latency_s in (3.0, 3.0):  # a Thursday, 101 s after midnight
        slot = QuerySlot(query="q", latency_s=latency_s)
        checked.now_s += 1
        checked.tell(SlotEnded, queries=(slot,), wall_s=checked.now_s)
    assert states(checked) == [VmState.STARTING]
    checked.tell(VmReady, vm="vm-1", billing_since_s=checked.now_s)
    routes = []
    while checked.now_s < 450:
        checked.now_s += 1
        low = QuerySlot(query="q", latency_s=2.5 if checked.now_s < 130 else 0.0)
        routes += checked.tell(SlotEnded, queries=(low,), wall_s=checked.now_s)
        if checked.now_s < 400:
            assert states(checked) in ([VmState.IDLE], [VmState.SENDING]), "it is kept although nothing needs it"
    assert [kind for kind, *_ in routes] == ["route", "route", "drain", "terminate"]
