"""Bus delays: readers, the generator, the oracle by hand, and the query's rule against the oracle."""

from __future__ import annotations

import gzip
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.buses.generator import generate_reports
from engines.buses.traces import BusReport, in_order, read_austin, read_dublin
from engines.buses.windows import Sighting, judge, window_of
from tests.workloads.bus_oracle import metres, windows_of
from tests.workloads.places import AUSTIN, DUBLIN

START = datetime(2013, 1, 31, 6, tzinfo=UTC)
METRE = 1 / 111_195
LINE = "{micros},13,0,00131005,2013-01-30,3406,CD,0,{longitude},53.343307,{delay},13003,{bus},1998,0"


def seen(second: int, bus: str, delay_s: int = 300, *, metres_up: float = 0, area: str = "a") -> BusReport:
    at = START + timedelta(seconds=second)
    return BusReport(at=at, area=area, bus=bus, delay_s=delay_s, longitude=-6.25, latitude=53.35 + metres_up * METRE)


def judged(reports: list[BusReport]) -> list[tuple[int, str, int, int, bool]]:
    """Return the oracle's rows: second, area, late, close, alarm."""
    found = windows_of(in_order(reports))
    return [((row["opens"] - START).seconds, row["area"], row["late"], row["close"], row["alarm"]) for row in found]


def test_a_bus_is_late_if_all_its_reports_of_the_window_are() -> None:
    reports = [seen(0, "b", 120), seen(20, "b", 119), seen(0, "c", 120), seen(299, "c", 120), seen(300, "c", 500)]
    assert judged(reports) == [(0, "a", 1, 0, False)]


def test_late_buses_are_close_at_one_instant_below_ten_metres() -> None:
    both = [seen(0, "b"), seen(100, "b"), seen(100, "c", metres_up=9.9), seen(200, "c", metres_up=500)]
    assert judged(both) == [(0, "a", 2, 2, False)]
    far = [seen(0, "b"), seen(100, "b"), seen(100, "c", metres_up=10.1), seen(200, "c", metres_up=500)]
    assert judged(far) == [(0, "a", 2, 0, False)]
    later = [seen(0, "b"), seen(100, "b"), seen(120, "c"), seen(200, "c", metres_up=500)]
    assert judged(later) == [(0, "a", 2, 0, False)]


def test_a_bus_in_time_makes_no_other_bus_close() -> None:
    reports = [
        seen(0, "b"),
        seen(20, "b"),
        seen(0, "c", 0),
        seen(20, "c", 0),
        seen(0, "d", area="x"),
        seen(20, "d", area="x"),
    ]
    assert judged(reports) == [(0, "a", 1, 0, False), (0, "x", 1, 0, False)]


@pytest.mark.parametrize(("buses", "alarm"), [(10, False), (11, True)])
def test_more_than_ten_buses_are_an_alarm(buses: int, *, alarm: bool) -> None:
    reports = [seen(second, f"b{number}", metres_up=number) for second in (0, 20) for number in range(buses)]
    assert judged(reports) == [(0, "a", buses, buses, alarm)]


def test_a_window_that_no_later_report_completes_has_no_row() -> None:
    assert windows_of([seen(0, "b"), seen(20, "b")]) == []


def test_distances_are_right() -> None:
    one, other = seen(0, "b"), seen(0, "c", metres_up=10)
    assert metres(one, other) == pytest.approx(10, rel=1e-4)
    east = BusReport(at=START, area="a", bus="c", delay_s=0, longitude=-6.25 + 10 * METRE / 0.5969, latitude=53.35)
    assert metres(one, east) == pytest.approx(10, rel=1e-3)


def by_rule(reports: list[BusReport]) -> list[dict[str, Any]]:
    """Return the rows of the query's rule, window by window."""
    windows: dict[tuple[int, str], list[Sighting]] = defaultdict(list)
    last: dict[str, int] = {}
    for each in reports:
        at_s = int(each.at.timestamp())
        last[each.area] = window_of(at_s)
        if each.bus is not None and each.longitude is not None and each.latitude is not None:
            place = (each.delay_s or 0, each.longitude, each.latitude)
            windows[last[each.area], each.area].append(Sighting(at_s, each.bus, *place))
    rows = []
    for (opens_s, area), found in sorted(windows.items()):
        one = judge(found)
        if one.late and opens_s < last[area]:
            rows.append({"opens": datetime.fromtimestamp(opens_s, UTC), "area": area, **one._asdict()})
    return rows


REPORTS = st.builds(
    seen,
    st.integers(0, 900),
    st.sampled_from([f"b{number}" for number in range(14)]),
    st.sampled_from([119, 120, 500, 500, 500]),
    metres_up=st.integers(0, 30),
    area=st.sampled_from("ax"),
)


@given(st.lists(REPORTS, max_size=80))
def test_the_rule_is_the_oracles(reports: list[BusReport]) -> None:
    ordered = list(in_order(reports))
    assert by_rule(ordered) == windows_of(ordered)


def test_generated_buses_raise_alarms_in_some_windows() -> None:
    reports = list(generate_reports(20_000, seed=3))
    assert reports == list(generate_reports(20_000, seed=3))
    assert all(one.at <= other.at for one, other in pairwise(reports))
    rows = windows_of(reports)
    assert rows == by_rule(reports)
    alarms = sum(row["alarm"] for row in rows)
    assert 0 < alarms < len(rows) / 2


def test_dublins_lines_are_read_by_time_and_end_the_windows(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "day.csv.gz", "wt") as file:
        file.write(LINE.format(micros=1359590403_000000, longitude=-6.21, delay=-5, bus=2) + "\n")
        file.write(LINE.format(micros=1359590401_000000, longitude=-6.25, delay=240, bus=1))
    reports = list(read_dublin(tmp_path / "day.csv.gz"))
    assert [(each.bus, each.delay_s, each.area) for each in reports[:2]] == [
        ("1", 240, "53.34,-6.26"),
        ("2", -5, "53.34,-6.22"),
    ]
    assert [(each.bus, each.area) for each in reports[2:]] == [(None, "53.34,-6.22"), (None, "53.34,-6.26")]
    assert {each.at.timestamp() for each in reports[2:]} == {1359590700}


def test_in_austin_a_bus_is_late_by_the_time_for_which_it_stands(tmp_path: Path) -> None:
    lines = ["vehicle_id,timestamp,speed,route_id,trip_id,latitude,longitude,trip_headsign"]
    speeds = [8.0, 0.4, 0.0, 3.0]
    for minute, speed in reversed(list(enumerate(speeds))):
        lines.append(f"7,2016-03-22T19:2{minute}:00-05:00,{speed},1,5,30.22,-97.76,x")
    lines.append("8,2016-03-22T19:20:00-05:00,,1,5,,,x")
    (tmp_path / "day.csv").write_text("\n".join(lines) + "\n")
    reports = list(read_austin(tmp_path / "day.csv"))
    assert [(each.bus, each.delay_s) for each in reports] == [("7", 0), ("7", 60), ("7", 120), ("7", 0), (None, None)]
    assert reports[0].at == datetime(2016, 3, 23, 0, 20, tzinfo=UTC)


def test_a_line_that_is_no_report_is_named(tmp_path: Path) -> None:
    (tmp_path / "day.csv").write_text(LINE.format(micros=1, longitude="east", delay=0, bus=1) + "\n")
    with pytest.raises(ValueError, match=r"day\.csv:1: not a report"):
        list(read_dublin(tmp_path / "day.csv"))


@pytest.mark.skipif(not (DUBLIN.exists() and AUSTIN.exists()), reason="the traces are not here")
def test_real_traces_are_read_and_judged() -> None:
    dublin, austin = list(read_dublin(DUBLIN)), list(read_austin(AUSTIN))
    assert sum(each.bus is not None for each in dublin) == 10_000
    assert sum(each.bus is not None for each in austin) > 30_000
    for reports in (dublin, austin):
        rows = windows_of(reports)
        assert rows == by_rule(reports)
        assert len(rows) > 50
