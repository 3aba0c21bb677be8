from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.email.generator import generate_mail
from gateway.demo.load import (
    COLD,
    FULL,
    QUICK,
    DemoPace,
    RateSegment,
    distinct_mails,
    due_times_s,
    event_count,
    looped_id,
    loops_needed,
    spikes,
)
from gateway.demo.stage import COLD_BOOT_S
from gateway.sources.schedule import Schedule

profiles = st.lists(st.tuples(st.floats(0.1, 5), st.floats(0.5, 100)), min_size=1, max_size=5).map(
    lambda pairs: [RateSegment(*pair) for pair in pairs]
)


def test_the_profile_has_two_spikes_at_twice_the_capacity_over_a_calm_base() -> None:
    profile = spikes(1000)
    assert [segment.events_per_s for segment in profile] == [300, 2000, 300, 2000, 300]
    assert sum(segment.duration_s for segment in profile) == 68
    assert event_count(profile) == 2 * 15 * 2000 + 38 * 300


def test_the_quick_demo_is_short_and_its_spike_lasts_until_a_vm_is_launched() -> None:
    quick, full = spikes(1000, QUICK), spikes(1000)
    assert sum(segment.duration_s for segment in quick) < sum(segment.duration_s for segment in full) / 4
    assert QUICK.warm_up_events + QUICK.capacity_events < (FULL.warm_up_events + FULL.capacity_events) / 4
    _, spike, calm = quick
    # Home is behind by half of the time for which twice its rate has come; L_s is 3 s, tau 1 s.
    assert spike.duration_s / 2 > 3 + 1
    assert calm.events_per_s < 1000


def test_the_spikes_of_a_cold_demo_last_longer_than_spark_takes_to_start() -> None:
    assert COLD.cold
    long = [segment.duration_s for segment in spikes(1000, COLD) if segment.events_per_s > 1000]
    assert len(long) == 2
    assert min(long) >= 60 > 2 * COLD_BOOT_S


@pytest.mark.parametrize("pace", [FULL, COLD])
def test_between_the_spikes_one_engine_can_catch_up(pace: DemoPace) -> None:
    _, spike, calm, *_ = spikes(1000, pace)
    assert (spike.events_per_s - 1000) * spike.duration_s < (1000 - calm.events_per_s) * calm.duration_s


@given(profiles)
def test_due_times_ascend_inside_the_profile_and_keep_its_rates(profile: list[RateSegment]) -> None:
    due_s = due_times_s(profile)
    assert len(due_s) == event_count(profile)
    assert due_s[0] == 0
    assert (np.diff(due_s) > 0).all()
    assert due_s[-1] <= sum(segment.duration_s for segment in profile)
    first = profile[0]
    assert abs(int((due_s < first.duration_s).sum()) - first.events) <= 1


@given(profiles)
def test_due_times_are_those_of_the_gateways_own_schedule(profile: list[RateSegment]) -> None:
    schedule = Schedule([(segment.duration_s, segment.events_per_s) for segment in profile])
    assert due_times_s(profile) == pytest.approx([schedule.due_s(record) for record in range(event_count(profile))])


def test_repeated_ids_are_dropped_and_the_first_kept() -> None:
    mails = list(generate_mail(5, seed=1))
    assert distinct_mails([*mails, mails[0], mails[3]]) == mails


def test_loops_cover_the_events_and_rename_all_but_the_first_pass() -> None:
    assert [loops_needed(events, 10) for events in (1, 10, 11)] == [1, 1, 2]
    assert [looped_id("<a>", loop) for loop in (0, 1, 12)] == ["<a>", "<a>#1", "<a>#12"]


def test_an_engine_without_capacity_has_no_profile() -> None:
    with pytest.raises(ValueError, match="above 0"):
        spikes(0)
