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
from infra.messages import SELECTION, Predicate, SelectionRule
from infra.queryplan import SelectionConditions
from tests.selections.sequential import Event, Sequential

MOST_BYTES = 1 << 30


CONDITIONS = SelectionConditions(
    opening=Predicate(op="eq", column=("kind",), value=0), closing=Predicate(op="eq", column=("kind",), value=1)
)
Moment = tuple[int, int, str | None]
"""When an event comes, ms; its kind; and its key."""


@st.composite
def rules(draw: st.DrawFn) -> SelectionRule:
    opens, ends = draw(st.sampled_from(("time", "count", "match"))), draw(st.sampled_from(("time", "count", "both")))
    same = opens == "match" and draw(st.booleans())
    return SelectionRule(
        column="at",
        each_ms=draw(st.integers(1, 40)) if opens == "time" else 0,
        each_events=draw(st.integers(1, 7)) if opens == "count" else 0,
        after_ms=draw(st.integers(1, 60)) if ends != "count" else 0,
        events=draw(st.integers(1, 12)) if ends != "time" else 0,
        most_events=draw(st.sampled_from((5, 1_000_000))),
        most_open=1_000_000,
        closes_same="key" if same else "",
        disjoint=not same and draw(st.booleans()),
    )


def conditions_of(rule: SelectionRule) -> SelectionConditions | None:
    return None if rule.each_ms or rule.each_events else CONDITIONS


@st.composite
def runs(draw: st.DrawFn) -> list[list[Moment]]:
    """The events of each run; their times mostly rise."""
    now_ms, found = 1_000, list[list[Moment]]()
    event = st.tuples(st.integers(-3, 15), st.integers(0, 2), st.sampled_from((None, "a", "b", "c")))
    for _ in range(draw(st.integers(1, 8))):
        found.append([])
        for step, kind, key in draw(st.lists(event, min_size=1, max_size=12)):
            now_ms += step
            found[-1].append((now_ms, kind, key))
    return found


def batch_of(first: int, moments: list[Moment]) -> pa.RecordBatch:
    times_ms, kinds, keys = zip(*moments, strict=True)
    columns = {
        "n": pa.array(range(first, first + len(moments)), pa.int64()),
        "at": pa.array(times_ms, pa.timestamp("ms", tz="UTC")),
        "kind": pa.array(kinds, pa.int64()),
        "key": pa.array(keys, pa.string()),
    }
    return pa.RecordBatch.from_pydict(columns)


def oracle(rule: SelectionRule, moments: list[Moment]) -> dict[int, list[int]]:
    """Return the events of each selection that closes."""
    sequential = Sequential(
        slide_ms=rule.each_ms or None,
        slide=rule.each_events or None,
        window_ms=rule.after_ms or None,
        count=rule.events or None,
        on_match=conditions_of(rule) is not None,
        most=rule.most_events,
        disjoint=rule.disjoint,
        same=bool(rule.closes_same),
    )
    events = [Event(time_ms, matches=kind == 0, ends=kind == 1, key=key) for time_ms, kind, key in moments]
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
    rule: SelectionRule, said: list[list[Moment]]
) -> None:
    selector = Selector(rule, conditions_of(rule), 0, SelectionMark(), MOST_BYTES)
    found, told, first = dict[int, list[int]](), list[int](), 0
    for moments in said:
        selected = selector.select(batch_of(first, moments))
        first += len(moments)
        found |= members(selected, rule)
        told += selected.seqs[selected.fresh].tolist()
    assert found == oracle(rule, [moment for moments in said for moment in moments])
    # Each event that is in any selection is reported by one run.
    assert sorted(told) == sorted({event for events in found.values() for event in events})


@given(rule=rules(), said=runs(), data=st.data())
def test_a_restart_goes_on_with_the_same_runs(
    tmp_path_factory: pytest.TempPathFactory, rule: SelectionRule, said: list[list[Moment]], data: st.DataObject
) -> None:
    with closing(RunLog(tmp_path_factory.mktemp("log") / "runs.log", LogHead("me", 0.0))) as log:
        check_restart(log, rule, said, data)


def check_restart(log: RunLog, rule: SelectionRule, said: list[list[Moment]], data: st.DataObject) -> None:
    selector = selector_for(rule, conditions_of(rule), log, 0, 0, MOST_BYTES)
    assert selector is not None
    batches, wanted = [], []
    for moments in said:
        batches.append(batch_of(log.next_seq, moments))
        wanted.append(selector.select(batches[-1]))
        last_seq = log.next_seq + len(moments) - 1
        log.append([RunRecord(log.next_seq, last_seq, Position(), Position(), 0.0, selections=selector.mark)])
    committed = data.draw(st.integers(0, len(said)), label="committed runs")
    committed_before = sum(len(moments) for moments in said[:committed])
    if data.draw(st.booleans(), label="the log has forgotten what is not needed"):
        log.retire(log.needed_from(committed_before))
    again = selector_for(rule, conditions_of(rule), log, committed_before, 0, MOST_BYTES)
    assert again is not None
    skipped = len(said) - sum(1 for run in log.runs if run.first_seq >= again.begin_seq)
    assert skipped <= committed
    marks = {run.first_seq: run.selections for run in log.runs}
    for batch, before in list(zip(batches, wanted, strict=True))[skipped:]:
        first_seq = batch.column("n")[0].as_py()
        selected = again.select(batch, marks[first_seq])
        if first_seq >= committed_before:
            assert members(selected, rule) == members(before, rule)
            assert (selected.batch.num_rows, selected.fresh.tolist()) == (before.batch.num_rows, before.fresh.tolist())
    assert again.mark == selector.mark


def test_open_selections_may_not_hold_more_than_their_memory() -> None:
    rule = SelectionRule(
        column="", each_ms=0, each_events=1, after_ms=0, events=10_000, most_events=10_000, most_open=10_000
    )
    selector = Selector(rule, None, 0, SelectionMark(), 10_000)
    for number in range(20):
        selector.select(batch_of(10 * number, [(at, 2, None) for at in range(10)]))
    says = r"1,200 open selections hold .* close them sooner, or raise gateway\.memory"
    with pytest.raises(HeldTooMuchError, match=says):
        selector.select(batch_of(200, [(at, 2, None) for at in range(1_000)]))


def test_an_event_without_a_time_does_not_move_the_streams_time() -> None:
    rule = SelectionRule(column="at", each_ms=100, each_events=0, after_ms=99, events=0, most_events=100, most_open=100)
    selector = Selector(rule, None, 0, SelectionMark(), MOST_BYTES)
    times = pa.array([1000, None, 1050, None, 1100, 1200], pa.timestamp("ms", tz="UTC"))
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(6)), times], names=["n", "at"])
    assert members(selector.select(batch), rule) == {0: [0, 1, 2, 3], 1: [4]}
