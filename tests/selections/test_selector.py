"""Runs of any lengths, with restarts between them, against the sequential operator."""

from __future__ import annotations

from contextlib import closing

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.query.selections.expansion import expanded
from gateway.connectors.position import Position
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord, SelectionMark
from gateway.query.flow.selecting.selector import HeldTooMuchError, Selected, Selector, selector_for
from infra.messages import SELECTION, SelectionRule
from tests.selections.sequential import Event, Sequential

MOST_BYTES = 1 << 30


@st.composite
def rules(draw: st.DrawFn) -> SelectionRule:
    by_time, ends = draw(st.booleans()), draw(st.sampled_from(("time", "count", "both")))
    return SelectionRule(
        column="at",
        each_ms=draw(st.integers(1, 40)) if by_time else 0,
        each_events=0 if by_time else draw(st.integers(1, 7)),
        after_ms=draw(st.integers(1, 60)) if ends != "count" else 0,
        events=draw(st.integers(1, 12)) if ends != "time" else 0,
        most_events=draw(st.sampled_from((5, 1_000_000))),
        most_open=1_000_000,
        disjoint=draw(st.booleans()),
    )


@st.composite
def runs(draw: st.DrawFn) -> list[list[int]]:
    """Times of the events of each run, ms; they mostly rise."""
    now_ms, found = 1_000, list[list[int]]()
    for _ in range(draw(st.integers(1, 8))):
        steps = draw(st.lists(st.integers(-3, 15), min_size=1, max_size=12))
        found.append([])
        for step in steps:
            now_ms += step
            found[-1].append(now_ms)
    return found


def batch_of(first: int, times_ms: list[int]) -> pa.RecordBatch:
    number = pa.array(range(first, first + len(times_ms)), pa.int64())
    return pa.RecordBatch.from_arrays([number, pa.array(times_ms, pa.timestamp("ms", tz="UTC"))], names=["n", "at"])


def oracle(rule: SelectionRule, times_ms: list[int]) -> dict[int, list[int]]:
    """Return the events of each selection that closes."""
    sequential = Sequential(
        slide_ms=rule.each_ms or None,
        slide=rule.each_events or None,
        window_ms=rule.after_ms or None,
        count=rule.events or None,
        most=rule.most_events,
        disjoint=rule.disjoint,
    )
    events = [Event(time_ms, matches=False, ends=False) for time_ms in times_ms]
    return {number: members for number, members, _ in sequential.run(events)}


def members(selected: Selected, rule: SelectionRule) -> dict[int, list[int]]:
    """Return the events of each selection of a run, as an engine host sees them."""
    rows, copied = expanded(selected.batch, rule)
    assert rows.column("n").to_pylist() == selected.seqs[copied].tolist()
    found: dict[int, list[int]] = {}
    for number, event in zip(rows.column(SELECTION).to_pylist(), rows.column("n").to_pylist(), strict=True):
        found.setdefault(number, []).append(event)
    return found


@given(rule=rules(), said=runs())
def test_runs_of_any_lengths_have_the_selections_of_the_sequential_operator(
    rule: SelectionRule, said: list[list[int]]
) -> None:
    selector, found, told, first = Selector(rule, None, 0, SelectionMark(), MOST_BYTES), dict[int, list[int]](), [], 0
    for times_ms in said:
        selected = selector.select(batch_of(first, times_ms))
        first += len(times_ms)
        found |= members(selected, rule)
        told += [seq for seq in selected.seqs.tolist() if seq >= selected.reports_from]
    assert found == oracle(rule, [time_ms for times_ms in said for time_ms in times_ms])
    # Each event that is in any selection is reported by one run.
    assert told == sorted({event for events in found.values() for event in events})


@given(rule=rules(), said=runs(), data=st.data())
def test_a_restart_goes_on_with_the_same_runs(
    tmp_path_factory: pytest.TempPathFactory, rule: SelectionRule, said: list[list[int]], data: st.DataObject
) -> None:
    with closing(RunLog(tmp_path_factory.mktemp("log") / "runs.log", LogHead("me", 0.0))) as log:
        check_restart(log, rule, said, data)


def check_restart(log: RunLog, rule: SelectionRule, said: list[list[int]], data: st.DataObject) -> None:
    selector = selector_for(rule, None, log, 0, 0, MOST_BYTES)
    assert selector is not None
    batches, wanted = [], []
    for times_ms in said:
        batches.append(batch_of(log.next_seq, times_ms))
        wanted.append(selector.select(batches[-1]))
        last_seq = log.next_seq + len(times_ms) - 1
        log.append([RunRecord(log.next_seq, last_seq, Position(), Position(), 0.0, selections=selector.mark)])
    committed = data.draw(st.integers(0, len(said)), label="committed runs")
    committed_before = sum(len(times_ms) for times_ms in said[:committed])
    if data.draw(st.booleans(), label="the log has forgotten what is not needed"):
        log.retire(log.needed_from(committed_before))
    again = selector_for(rule, None, log, committed_before, 0, MOST_BYTES)
    assert again is not None
    skipped = len(said) - sum(1 for run in log.runs if run.first_seq >= again.begin_seq)
    assert skipped <= committed
    marks = {run.first_seq: run.selections for run in log.runs}
    for batch, before in list(zip(batches, wanted, strict=True))[skipped:]:
        first_seq = batch.column("n")[0].as_py()
        selected = again.select(batch, marks[first_seq])
        if first_seq >= committed_before:
            assert members(selected, rule) == members(before, rule)
            assert (selected.batch.num_rows, selected.reports_from) == (before.batch.num_rows, before.reports_from)
    assert again.mark == selector.mark


def test_open_selections_may_not_hold_more_than_their_memory() -> None:
    rule = SelectionRule(
        column="", each_ms=0, each_events=1, after_ms=0, events=10_000, most_events=10_000, most_open=10_000
    )
    selector = Selector(rule, None, 0, SelectionMark(), 10_000)
    for number in range(20):
        selector.select(batch_of(10 * number, list(range(10))))
    says = r"1,200 open selections hold .* close them sooner, or raise gateway\.memory"
    with pytest.raises(HeldTooMuchError, match=says):
        selector.select(batch_of(200, list(range(1_000))))


def test_an_event_without_a_time_does_not_move_the_streams_time() -> None:
    rule = SelectionRule(column="at", each_ms=100, each_events=0, after_ms=99, events=0, most_events=100, most_open=100)
    selector = Selector(rule, None, 0, SelectionMark(), MOST_BYTES)
    times = pa.array([1000, None, 1050, None, 1100, 1200], pa.timestamp("ms", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(6)), times], names=["n", "at"])
    assert members(selector.select(batch), rule) == {0: [0, 1, 2, 3], 1: [4]}
