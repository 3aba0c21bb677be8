"""Announced load: when it comes, what earlier occurrences teach, and that VMs are there in time but not for nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.advice import Advice, Reactive, Seen, Site, StandingVm
from policies.announced.experience import CameTrue, Experience, Prediction
from policies.announced.load import AnnouncedLoad, Needed
from policies.announced.policy import AnnouncedPolicy, with_announced
from policies.announced.watching import Coming
from policies.announcement import Announcement, Occurrence
from policies.lookahead.policy import LookaheadOptions
from policies.money.billing import BillingTerms
from policies.planning.plain import StaticOptions
from policies.signals import HOME, QuerySlot
from tests.policies.policy_play import BOOT_S, HOME_PER_S, PERIOD_S, Play, Played

SLOT_S = 1.0
LASTS_S = 100.0
PARIS = ZoneInfo("Europe/Paris")


def at(begins_s: float, lasts_s: float = LASTS_S) -> Occurrence:
    return Occurrence(begins_s, begins_s + lasts_s)


def test_cron_follows_the_clocks_of_its_zone() -> None:
    """Nine in the evening is nine in the evening on both sides of the change to summer time."""
    nightly = Announcement(name="match", every="0 21 * * *", zone="Europe/Paris", lasts_s=7200.0)
    begun = datetime(2026, 3, 27, 12, tzinfo=PARIS)
    wanted = [datetime(2026, 3, day, 21, tzinfo=PARIS).timestamp() for day in range(27, 32)]
    found = list(nightly.between(begun.timestamp(), (begun + timedelta(days=5)).timestamp()))
    assert [each.begins_s for each in found] == wanted
    assert {round(later - earlier) for earlier, later in pairwise(wanted)} == {82_800, 86_400}
    assert {each.ends_s - each.begins_s for each in found} == {7200.0}


@given(st.floats(0, 5000), st.floats(1, 500))
def test_an_occurrence_counts_while_it_lasts(from_s: float, within_s: float) -> None:
    hourly = Announcement(name="batch", every="*/10 * * * *", lasts_s=120.0)
    fixed = Announcement(name="batch", occurrences=tuple(at(600.0 * each, 120.0) for each in range(20)))
    found = list(hourly.between(from_s, from_s + within_s))
    assert found == list(fixed.between(from_s, from_s + within_s))
    assert all(each.ends_s > from_s and each.begins_s < from_s + within_s for each in found)


@given(st.floats(0.2, 5.0), st.integers(1, 50))
def test_experience_narrows_to_what_was_seen(ratio: float, count: int) -> None:
    experience, before = Experience(), Experience().ratio()
    for _ in range(count):
        experience.add(CameTrue(ratio))
    found = experience.ratio()
    assert found.low < found.mean < found.high
    assert abs(math.log(found.mean / ratio)) <= abs(math.log(ratio)) + 1e-9
    if count >= 20:
        assert found.mean == pytest.approx(ratio, rel=0.2)
    if abs(math.log(ratio)) < 0.1:
        assert found.high / found.low < before.high / before.low
    assert experience.believed


def test_what_never_comes_true_is_not_believed_for_long() -> None:
    experience = Experience()
    for _ in range(2):
        experience.add(CameTrue(0.0))
    assert experience.believed
    experience.add(CameTrue(0.0))
    assert not experience.believed
    for _ in range(3):
        experience.add(CameTrue(1.0))
    assert experience.believed


def followed(
    announcement: Announcement, rate: Callable[[float], float], until_s: float, boot_s: float = 20.0
) -> list[tuple[float, Needed | None]]:
    """Return what is needed in each second; a VM and home serve 1,000 events a second each."""
    load, found = AnnouncedLoad([announcement], SLOT_S), list[tuple[float, Needed | None]]()
    for second in range(1, int(until_s) + 1):
        load.observe(float(second), rate(second - 0.5))
        found.append(
            (
                float(second),
                load.needed(float(second), boot_s=boot_s, period_s=60.0, event_s=1e-3, home_engines=1.0),
            )
        )
    return found


def step(
    begins: Sequence[float], high: float, low: float = 500.0, lasts_s: float = LASTS_S
) -> Callable[[float], float]:
    return lambda at_s: high if any(begin <= at_s < begin + lasts_s for begin in begins) else low


def launched(found: list[tuple[float, Needed | None]]) -> list[tuple[float, int]]:
    """Return when the number of wanted VMs changes."""
    counts = [(at_s, needed.wanted if needed else 0) for at_s, needed in found]
    return [now for before, now in zip([(0.0, 0), *counts], counts, strict=False) if before[1] != now[1]]


def test_vms_are_wanted_a_boot_before_and_until_the_end() -> None:
    said = Announcement(name="match", occurrences=(at(300.0),), factor=5.0)
    found = launched(followed(said, step([300.0], 2500.0), 600.0))
    (first_s, most), *_, (last_s, none) = found
    assert 300.0 - 20.0 - 0.3 * LASTS_S <= first_s <= 300.0 - 20.0
    assert most >= 2
    assert none == 0
    assert 400.0 <= last_s <= 400.0 + 0.3 * LASTS_S
    # Once it is there, what is there counts: 1.5 VMs are needed beside home.
    assert dict(found[1:-1]).popitem()[1] == 2


def test_the_height_and_the_delay_are_learned() -> None:
    """What is announced as 4,000 events a second comes 20 s late with 2,000."""
    begins = [500.0 * each for each in range(1, 21)]
    said = Announcement(name="batch", occurrences=tuple(map(at, begins)), rate=4000.0)
    found = followed(said, step([each + 20.0 for each in begins], 2000.0), begins[-1] + 300.0)
    first = next(needed for at_s, needed in found if needed is not None and at_s > begins[0] - 20.0)
    last = next(needed for at_s, needed in found if needed is not None and needed.wanted and at_s > begins[-1] - 60.0)
    assert first.wanted >= 3
    assert last.wanted == 2
    assert last.coming.rate.mean == pytest.approx(2000.0, rel=0.15)
    assert last.coming.from_s > first.coming.from_s - begins[0] + begins[-1] + 10.0
    assert "19 of the last 19 came true" in last.coming.words


def test_load_that_does_not_come_is_waited_for_only_for_a_while_and_not_for_ever() -> None:
    begins = [500.0 * each for each in range(1, 8)]
    said = Announcement(name="batch", occurrences=tuple(map(at, begins)), rate=4000.0)
    found = followed(said, lambda _: 500.0, begins[-1] + 300.0)
    wanted_s = [
        sum(needed is not None and needed.wanted > 0 for at_s, needed in found if begin - 100 < at_s <= begin + 400)
        for begin in begins
    ]
    assert all(0 < each < LASTS_S for each in wanted_s[:3])
    assert wanted_s[3:] == [0] * 4


def test_other_times_do_not_forget_what_was_seen() -> None:
    load = AnnouncedLoad([Announcement(name="batch", occurrences=(at(200.0),), rate=4000.0)], SLOT_S)
    rate = step([200.0], 2000.0)
    for second in range(1, 400):
        load.observe(float(second), rate(second - 0.5))
    load.change([Announcement(name="batch", occurrences=(at(900.0),), rate=4000.0)])
    load.observe(890.0, 500.0)
    needed = load.needed(890.0, boot_s=20.0, period_s=60.0, event_s=1e-3, home_engines=1.0)
    assert needed is not None
    assert needed.coming.words.startswith("1 of the last 1 came true")


def played(options: object, announced: tuple[Announcement, ...], rate: Callable[[float], float]) -> Played:
    return Play(options, rate, max_vms=3, announced=announced).until(400.0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("options", "part"), [(None, 0.6), (LookaheadOptions(), 0.95), (StaticOptions(0), 0.1)])
def test_with_the_real_scheduler_a_vm_serves_when_announced_load_comes(options: object, part: float) -> None:
    """A VM boots in 6 s here, so the lookahead policy alone is late by little."""
    begins_s = 200.0
    rate = step([begins_s], 2500.0, low=400.0, lasts_s=60.0)
    said = Announcement(name="match", occurrences=(at(begins_s, 60.0),), rate=2500.0)
    before, after = played(options, (), rate), played(options, (said,), rate)
    assert after.started[0][0] <= begins_s - BOOT_S
    assert "because of match" in after.started[0][1]
    assert after.mean_latency_s(begins_s) < part * before.mean_latency_s(begins_s)
    assert len(after.ended_s) == len(after.started)
    assert max(after.ended_s) < begins_s + 60.0 + 0.3 * 60.0 + 2 * PERIOD_S


def test_what_is_announced_wrongly_costs_a_few_periods_and_harms_no_event() -> None:
    said = Announcement(name="match", occurrences=(at(200.0, 60.0),), rate=3 * HOME_PER_S)
    quiet = played(None, (said,), lambda _: 400.0)
    assert 0 < quiet.usd <= len(quiet.started) * 4 * PERIOD_S / 3600 * 0.36
    assert quiet.mean_latency_s() == pytest.approx(played(None, (), lambda _: 400.0).mean_latency_s(), rel=0.03)


@given(
    st.one_of(st.none(), st.integers(0, 5)), st.integers(0, 5), st.integers(0, 8), st.integers(0, 8), st.integers(0, 5)
)
def test_advice_is_never_lowered_nor_raised_above_the_limit(
    wanted: int | None, more: int, now: int, soon: int, there: int
) -> None:
    inner = Advice() if wanted is None else Advice(wanted=wanted, kept=wanted + more)
    site = Site(max_vms=5, terms=BillingTerms(60.0, 60.0, 0.36, 0.0), boot_s=20.0, slot_s=1.0)
    rate = Prediction(1.0, 2.0, 3.0)
    needed = Needed(now, max(now, soon), Coming("a", at(100.0), 90.0, 210.0, rate, has_come=False, words=""), 3.0)
    vms = (StandingVm(0.0, 30.0),) * there
    seen = Seen(at_s=80.0, wall_s=80.0, slot=QuerySlot(query="q", latency_s=0.1), boot_s=20.0, vms=vms)
    found = with_announced(inner, needed, seen, 1.0, site)
    if found is inner:
        assert now == soon == 0
        return
    assert found.wanted is not None
    assert found.wanted == max(wanted or 0, min(now, 5))
    assert found.kept >= max(found.wanted, inner.kept)
    assert found.kept <= max(5, inner.kept, there)
    # Where equation 1 decides otherwise, none of its VMs is given back because of an announcement.
    assert wanted is not None or found.kept >= there
    assert found.rising_to <= 5


def test_only_news_is_told() -> None:
    """Plain equation 1 makes a new answer in each slot; what is announced is told when it changes."""
    site = Site(max_vms=5, terms=BillingTerms(60.0, 60.0, 0.36, 0.0), boot_s=20.0, slot_s=1.0)
    said = Announcement(name="batch", occurrences=(at(100.0), at(1100.0)), factor=4.0)
    policy, told = AnnouncedPolicy(Reactive(), [said], site, 2.0), list[Advice]()
    for second in range(1, 1200):
        slot = QuerySlot(
            query="q",
            latency_s=0.1,
            input_rate=900.0 + second % 7,
            completed_events={HOME: 900},
            batches={HOME: 1},
            busy_s={HOME: 0.9},
        )
        advice = policy.advise(Seen(at_s=float(second), wall_s=float(second), slot=slot, boot_s=20.0))
        if advice.why and advice not in told:
            told.append(advice)
    assert 2 <= len(told) <= 8
    assert "00:01 to 00:03 UTC" in told[0].why
    assert "00:18 to 00:20 UTC" in told[-1].why


def test_times_are_told_in_utc() -> None:
    begins_s = 200.0
    said = Announcement(name="match", occurrences=(at(begins_s, 60.0),), rate=2500.0)
    result = played(None, (said,), step([begins_s], 2500.0, low=400.0, lasts_s=60.0))
    advice = next(each.advice for each in result.decisions if each.advice.wanted)
    assert f"{datetime.fromtimestamp(begins_s, UTC):%Y-%m-%d %H:%M} to 00:04 UTC" in advice.why
    assert advice.expected is not None
    assert advice.expected.low < advice.expected.rate < advice.expected.high
