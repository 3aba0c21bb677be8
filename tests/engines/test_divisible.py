"""Which parts may be opened, what their hash counts, and which rows of their runs are heartbeats; without Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engines.query.code import former_hash, query_hash
from engines.query.parts.divisible import why_ill_formed, why_not_by_key, why_own_watermark
from engines.query.parts.heartbeats import as_heartbeats, divided
from engines.streaming.feed import Item, pack
from engines.streaming.tables import unpack, with_heartbeats
from infra.messages import HEARTBEAT, KeyPart, OpenQuery, QueryPlan

SPEC = OpenQuery(query="q.1", epoch=1, schema_ddl="a INT", sql="SELECT DISTINCT a FROM events", max_batch_runs=1)
PART = KeyPart(key="a", index=1, parts=3)
RUN_SCHEMA = pa.schema([("a", pa.int32()), (HEARTBEAT, pa.bool_())])


def part(**changed: Any) -> KeyPart:
    return replace(PART, **changed)


def plan(**changed: Any) -> QueryPlan:
    keyed = QueryPlan(switch_class="keyed", switchable=False, narrow=False, keys=("a", "b"), reason="it aggregates")
    return replace(keyed, **changed)


def test_the_key_and_the_number_of_parts_count_in_the_hash_and_the_index_does_not() -> None:
    def hash_of(part: KeyPart | None) -> str:
        return query_hash(replace(SPEC, part=part))

    assert hash_of(part(index=0)) == hash_of(part(index=2))
    assert len({hash_of(each) for each in (None, PART, part(parts=4), part(key="b"))}) == 4
    assert former_hash(replace(SPEC, part=PART)) != former_hash(SPEC)
    # The state of earlier versions stays valid.
    assert hash_of(None) == "ff1f5a16f68e2bb3793e2d00e5c80aabe6921ef1e0d2b8b55dd9b2c2581cda22"


@pytest.mark.parametrize(
    ("spec", "asked", "columns", "said"),
    [
        (SPEC, PART, ["a"], ""),
        (SPEC, part(index=3), ["a"], "part 3 of 3"),
        (SPEC, part(index=-1), ["a"], "part -1 of 3"),
        (SPEC, part(index=0, parts=0), ["a"], "part 0 of 0"),
        (replace(SPEC, max_batch_runs=2), PART, ["a"], "2 runs in a micro-batch"),
        (SPEC, PART, ["a", "_Heartbeat"], "rename yours"),
    ],
)
def test_a_part_that_cannot_be_is_refused(spec: OpenQuery, asked: KeyPart, columns: list[str], said: str) -> None:
    found = why_ill_formed(spec, asked, columns)
    assert said in found
    assert bool(said) == bool(found)


@pytest.mark.parametrize(
    ("asked", "of_query", "said"),
    [
        (PART, plan(), ""),
        (part(key="b"), plan(), ""),
        (part(key="c"), plan(), "divided by c, because events that differ in it may meet; it can be divided by a or b"),
        (PART, plan(switch_class="whole", keys=(), reason="it sorts"), "it cannot be divided by key: it sorts"),
        (PART, plan(switch_class="stateless", keys=(), reason=""), "it holds no state"),
    ],
)
def test_a_query_is_divided_by_its_keys_alone(asked: KeyPart, of_query: QueryPlan, said: str) -> None:
    found = why_not_by_key(asked, of_query)
    assert said in found
    assert bool(said) == bool(found)


def test_only_the_watermark_of_the_event_time_can_be_kept_equal() -> None:
    assert why_own_watermark(0, timed=False) == why_own_watermark(1, timed=True) == ""
    assert "as event_time" in why_own_watermark(1, timed=False)
    assert "as event_time" in why_own_watermark(2, timed=True)


def run_of(marks: list[bool]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.array(range(len(marks)), pa.int32()), pa.array(marks)], schema=RUN_SCHEMA)


@given(st.lists(st.booleans(), min_size=1), st.data())
def test_rows_of_a_run_become_heartbeats_where_they_are(marks: list[bool], data: st.DataObject) -> None:
    bad = data.draw(st.sets(st.integers(0, len(marks) - 1)))
    events, heartbeats = divided(as_heartbeats(run_of(marks), bad))
    assert events == [row for row, mark in enumerate(marks) if not mark and row not in bad]
    assert sorted(events + heartbeats) == list(range(len(marks)))


def test_bad_rows_are_counted_over_all_runs_of_a_micro_batch() -> None:
    items = [
        Item(start=number, end=number + 1, parts=pack(run_of(marks)), tag=number)
        for number, marks in enumerate([[False, False], [False, False, True]])
    ]
    changed = with_heartbeats(items, {1, 2}, RUN_SCHEMA)
    assert [(item.start, item.end, item.tag) for item in changed] == [(0, 1, 0), (1, 2, 1)]
    rows = [unpack(item.parts, RUN_SCHEMA).to_pydict() for item in changed]
    assert rows == [{"a": [0, 1], HEARTBEAT: [False, True]}, {"a": [0, 1, 2], HEARTBEAT: [True, False, True]}]
