"""Announced load in the config: cron, single times and calendars reach the policies; mistakes are told."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, load
from gateway.config.settings import scheduler_settings
from policies.announcement import Announcement, Occurrence

Write = Callable[..., Path]
QOS = "qos: {latency: 2s}"
WEEKLY = """\
BEGIN:VCALENDAR
VERSION:2.0
PRODID:-//spillway//tests//EN
BEGIN:VEVENT
UID:1
DTSTART;TZID=Europe/Paris:{first}
DTEND;TZID=Europe/Paris:{end}
RRULE:FREQ=WEEKLY;COUNT=3
END:VEVENT
BEGIN:VEVENT
UID:2
DTSTART:{first}
DURATION:PT45M
END:VEVENT
END:VCALENDAR
"""


def with_announced(write: Write, *texts: str, switching: str = "") -> Config:
    listed = "".join(f"\n      - {{{text}}}" for text in texts)
    return load(write((QOS, f"{QOS}{switching}\n    announced:{listed}")), {})


def announced(config: Config) -> tuple[Announcement, ...]:
    return scheduler_settings(config).queries[0].announced


def test_cron_and_single_times_reach_the_scheduler(write: Write) -> None:
    config = with_announced(
        write,
        'name: batch, every: "0 2 * * *", zone: Europe/Berlin, for: 30m, factor: 4',
        "name: campaign, at: 2026-12-24T18:00:00+01:00, for: 2h, rate: 5000/s",
    )
    begins_s = datetime(2026, 12, 24, 17, tzinfo=UTC).timestamp()
    assert announced(config) == (
        Announcement(name="batch", every="0 2 * * *", zone="Europe/Berlin", lasts_s=1800.0, factor=4.0),
        Announcement(
            name="campaign", occurrences=(Occurrence(begins_s, begins_s + 7200.0),), lasts_s=7200.0, rate=5000.0
        ),
    )
    assert scheduler_settings(config).queries[1].announced == ()


def calendar(tmp_path: Path, first: datetime) -> str:
    text = WEEKLY.format(first=f"{first:%Y%m%dT%H%M%S}", end=f"{first + timedelta(hours=2):%Y%m%dT%H%M%S}")
    (tmp_path / "matches.ics").write_text(text)
    return "name: matches, calendar: matches.ics, zone: UTC, factor: 6"


def test_a_calendar_repeats_and_has_zones(write: Write, tmp_path: Path) -> None:
    # In January and February Paris is an hour ahead of UTC.
    first = datetime(datetime.now(UTC).year + 1, 1, 15, 21)  # noqa: DTZ001 -- with the zone that the calendar says
    if first - datetime.now() > timedelta(days=340):  # noqa: DTZ005 -- as first
        first = first.replace(year=first.year - 1, month=2)
    (said,) = announced(with_announced(write, calendar(tmp_path, first)))
    of_zone = first.replace(tzinfo=UTC)
    in_utc = [
        (of_zone - timedelta(hours=1), 7200.0),
        (of_zone, 2700.0),
        (of_zone + timedelta(days=7, hours=-1), 7200.0),
        (of_zone + timedelta(days=14, hours=-1), 7200.0),
    ]
    now = datetime.now(UTC) - timedelta(days=7)
    expected = [(begins.timestamp(), lasts_s) for begins, lasts_s in in_utc if begins > now]
    assert [(each.begins_s, each.lasts_s) for each in said.occurrences] == expected
    assert said.factor == 6


def test_a_changed_calendar_is_another_config_and_is_watched(write: Write, tmp_path: Path) -> None:
    soon = datetime.now().replace(microsecond=0) + timedelta(days=5)  # noqa: DTZ005 -- with the zone that the calendar says
    text = calendar(tmp_path, soon)
    before, again = with_announced(write, text), with_announced(write, text)
    calendar(tmp_path, soon + timedelta(days=1))
    after = with_announced(write, text)
    assert before.queries == again.queries
    assert before.queries != after.queries
    assert [path.name for path in after.files] == ["config.yaml", "matches.ics"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('name: a, every: "0 25 * * *", for: 1h, factor: 2', "is no cron expression"),
        ("name: a, for: 1h, factor: 2", "give exactly one of every, at, calendar"),
        ('name: a, every: "0 2 * * *", at: 2026-12-24T18:00:00Z, for: 1h, factor: 2', "exactly one of every, at"),
        ('name: a, every: "0 2 * * *", for: 1h', "give exactly one of rate, factor"),
        ('name: a, every: "0 2 * * *", for: 1h, factor: 2, rate: 100/s', "give exactly one of rate, factor"),
        ('name: a, every: "0 2 * * *", factor: 2', "write how long it lasts"),
        ("name: a, at: 2026-12-24T18:00:00, for: 1h, factor: 2", "time"),
        ("name: a, at: 2026-12-24T18:00:00Z, zone: Europe/Paris, for: 1h, factor: 2", "has its own zone"),
        ('name: a, every: "0 2 * * *", zone: Mars/Base, for: 1h, factor: 2', "no time zone"),
        ('name: a, every: "0 2 * * *", for: 1h, factor: 0.5', "greater than 1"),
        ("name: a, calendar: none.ics, factor: 2", "check the path"),
        ("name: a, calendar: mail.jsonl.gz, factor: 2", "is no iCalendar file"),
        ("name: a, calendar: none.ics, for: 2h, factor: 2", "is not used with calendar"),
    ],
)
def test_mistakes_are_told(write: Write, text: str, says: str) -> None:
    with pytest.raises(ConfigError, match="announced") as caught:
        with_announced(write, text)
    assert says in str(caught.value)


def test_an_event_without_a_length_is_refused(write: Write, tmp_path: Path) -> None:
    soon = datetime.now(UTC) + timedelta(days=1)
    event = f"BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART:{soon:%Y%m%dT%H%M%SZ}\nEND:VEVENT\nEND:VCALENDAR\n"
    (tmp_path / "matches.ics").write_text(event)
    with pytest.raises(ConfigError, match="an event without a length"):
        with_announced(write, "name: matches, calendar: matches.ics, factor: 6")


def test_names_differ_and_a_query_that_stays_home_has_none(write: Write) -> None:
    night = 'name: batch, every: "0 2 * * *", for: 1h, factor: 2'
    with pytest.raises(ConfigError, match="two announcements have the same name"):
        with_announced(write, night, night)
    with pytest.raises(ConfigError, match="nothing to decide, as switching"):
        with_announced(write, night, switching="\n    switching: {mode: off}")
