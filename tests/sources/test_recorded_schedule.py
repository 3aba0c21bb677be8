from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.sources.files.reading.passes import FixedFiles, PassesSource
from gateway.sources.files.recorded import MISSING, joined_times, times_of_files
from gateway.sources.schedule import RecordedSchedule
from infra.files.choosing import open_by_name
from infra.rows.base import SourceError

TIMES = st.lists(st.integers(-(10**15), 10**15) | st.integers(0, 9), min_size=1, max_size=30).map(sorted)
SPEED = st.sampled_from([0.1, 1.0, 3.0, 10.0, 1e6]) | st.floats(0.01, 1000)
AT = pa.field("at", pa.timestamp("us", "UTC"))


def schedule(times: list[int], speed: float = 1.0, loops: int = 1) -> RecordedSchedule:
    return RecordedSchedule(np.array(times, np.int64), speed=speed, loops=loops)


@given(TIMES, SPEED, st.integers(1, 4))
def test_what_is_due_is_counted_from_the_very_moment(times: list[int], speed: float, loops: int) -> None:
    plan = schedule(times, speed, loops)
    total = len(times) * loops
    due = [plan.due_s(record) for record in range(total)]
    assert due[0] == 0.0
    assert due == sorted(due)
    for record in range(total):
        assert plan.due_count(due[record]) == sum(at <= due[record] for at in due)
        assert plan.due_count(np.nextafter(due[record], -1.0)) == sum(at < due[record] for at in due)
    assert plan.due_count(due[-1] + 1e6) == total
    assert plan.due_s(total + 5) == due[-1]


@given(TIMES, SPEED, st.integers(1, 3), st.data())
def test_the_mean_is_that_of_the_records(times: list[int], speed: float, loops: int, data: st.DataObject) -> None:
    plan = schedule(times, speed, loops)
    first = data.draw(st.integers(0, len(times) * loops - 1))
    last = data.draw(st.integers(first, len(times) * loops - 1))
    expected = float(np.mean([plan.due_s(record) for record in range(first, last + 1)]))
    assert plan.mean_due_s(first, last) == pytest.approx(expected, rel=1e-9, abs=1e-9)
    each = [plan.due_s(record) for record in range(first, last + 1)]
    assert plan.due_times_s(first, last) == pytest.approx(each, rel=1e-9, abs=1e-9)


@given(TIMES, SPEED)
def test_gaps_are_those_of_the_record_divided_by_the_speed(times: list[int], speed: float) -> None:
    plan = schedule(times, speed)
    for record, at in enumerate(times):
        assert plan.due_s(record) == pytest.approx((at - times[0]) / 1e6 / speed, rel=1e-12)


def test_a_pass_begins_behind_the_one_before() -> None:
    plan = schedule([0, 1_000_000, 2_000_000], loops=3)
    assert [plan.due_s(record) for record in range(9)] == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert [schedule([7, 7], loops=2).due_s(record) for record in range(4)] == [0, 0, 0, 0]


@pytest.mark.parametrize("speed", [0.0, -1.0])
def test_what_is_no_schedule_is_refused(speed: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        schedule([1, 2], speed)
    with pytest.raises(ValueError, match="must not fall"):
        schedule([2, 1])


def test_no_records_are_never_due() -> None:
    plan = schedule([])
    assert (plan.due_count(5.0), plan.due_s(0), plan.mean_due_s(0, 3)) == (0, 0.0, 0.0)


@given(st.lists(st.lists(st.integers(-100, 100) | st.just(MISSING), max_size=8), max_size=4))
def test_a_time_that_is_missing_or_goes_back_is_the_one_before(pieces: list[list[int]]) -> None:
    joined = joined_times(np.array(piece, np.int64) for piece in pieces).tolist()
    given_times = [time for piece in pieces for time in piece]
    known = [time for time in given_times if time != MISSING]
    newest = known[0] if known else 0
    expected = []
    for time in given_times:
        newest = max(newest, time)
        expected.append(newest)
    assert joined == expected


def test_every_record_of_a_file_has_a_time_whatever_it_is(tmp_path: Path) -> None:
    day = "2020-01-01T00:00:"
    texts = [json.dumps({"at": f"{day}{second:02}Z"}) for second in (5, 6, 9, 7)]
    lines = [*texts[:2], "", "oops", texts[2], json.dumps({"at": None}), texts[3], "{}", ""]
    (tmp_path / "in.jsonl").write_text("\n".join(lines) + "\n")
    source = PassesSource(FixedFiles([tmp_path / "in.jsonl"]), partial(open_by_name, strict=False))
    plan = RecordedSchedule(times_of_files(source, AT.with_nullable(False)), speed=2.0)
    assert [plan.due_s(record) for record in range(9)] == [0, 0.5, 0.5, 0.5, 2, 2, 2, 2, 2]


def test_too_many_records_are_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"at": null}\n' * 11)
    source = PassesSource(FixedFiles([tmp_path / "in.jsonl"]), partial(open_by_name, strict=False))
    with pytest.raises(SourceError, match="replay it at a rate"):
        times_of_files(source, AT, records_max=10)
