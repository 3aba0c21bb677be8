"""How a run is divided among the parts of a keyed query."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.query.flow.keyed.split import part_of_each, split
from gateway.query.flow.run import Run
from infra.messages import HEARTBEAT, Predicate

PARTS = 4
TIMES = st.one_of(st.none(), st.integers(0, 1000))


def run_of(keys: list[str | None], times: list[int | None], first: int = 100) -> Run:
    batch = pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.string()), pa.array(times, pa.timestamp("us", tz="UTC"))], names=["key", "at"]
    )
    return Run(first, first + len(keys) - 1, batch, 7.0, 1003)


@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c", "ä", "", None]), TIMES), min_size=1, max_size=40))
def test_each_event_is_in_the_part_of_its_key_and_each_part_sees_the_newest(
    rows: list[tuple[str | None, int | None]],
) -> None:
    run = run_of([key for key, _ in rows], [at for _, at in rows])
    pieces = split(run, "key", PARTS, {"": "at"})
    owners: dict[str | None, set[int]] = {}
    for part, piece in enumerate(pieces):
        own = piece.batch.filter(np.invert(piece.batch[HEARTBEAT].to_numpy(zero_copy_only=False)))
        assert [piece.seq_of(row) for row in range(piece.events)] == piece.seqs.tolist()  # type: ignore[union-attr]
        assert own.num_rows == piece.events
        for seq, key in zip(piece.seqs.tolist(), own["key"].to_pylist(), strict=True):  # type: ignore[union-attr]
            assert rows[seq - run.first_seq][0] == key
            assert piece.row_of(seq) == piece.seqs.tolist().index(seq)  # type: ignore[union-attr]
            owners.setdefault(key, set()).add(part)
        assert piece.batch.num_rows >= 1
        assert piece.batch.num_rows <= piece.events + 1
        times = [at for _, at in rows if at is not None]
        if times:
            newest = max(at for at in piece.batch["at"].cast(pa.int64()).to_pylist() if at is not None)
            assert newest == max(times)
    assert all(len(parts) == 1 for parts in owners.values())
    assert sorted(seq for piece in pieces for seq in piece.seqs.tolist()) == list(range(100, 100 + len(rows)))  # type: ignore[union-attr]
    assert sum(piece.raw_bytes for piece in pieces) == run.raw_bytes
    assert {(piece.first_seq, piece.last_seq) for piece in pieces} == {(run.first_seq, run.last_seq)}


def test_an_event_that_does_not_pass_the_querys_conditions_is_no_heartbeat() -> None:
    run = run_of(["a", "b", "a", "b"], [1, 2, 3, 4])
    only_a = Predicate(op="eq", column=("key",), value="a")
    pieces = split(run, "key", PARTS, {"": "at"}, (only_a,))
    of_a, of_b = (pieces[int(part_of_each(pa.array([key]), PARTS)[0])] for key in "ab")
    assert of_a.batch.num_rows == 2
    marks = [(row["at"].microsecond, row[HEARTBEAT]) for row in of_b.batch.to_pylist()]
    assert marks == [(2, False), (4, False), (3, True)]
    nobody = Predicate(op="eq", column=("key",), value="c")
    assert sorted(piece.batch.num_rows for piece in split(run, "key", PARTS, {"": "at"}, (nobody,))) == [1, 1, 2, 2]


def test_without_event_time_only_a_part_without_events_gets_a_heartbeat() -> None:
    pieces = split(run_of(["a"] * 5, [None] * 5), "key", PARTS, {})
    assert sorted((piece.events, piece.batch.num_rows) for piece in pieces) == [(0, 1)] * (PARTS - 1) + [(5, 5)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (pa.array(["a", "b", None, "", "Zürich"]), [3, 1, 0, 0, 2]),
        (pa.array([0, 1, -1, None, 1 << 40], pa.int64()), [0, 1, 2, 0, 0]),
        (pa.array([0, 1, -1, None], pa.int32()), [0, 1, 2, 0]),
        (pa.array([b"a", b"\xff"]), [3, 0]),
        (pa.array([True, False, None]), [1, 0, 0]),
        (pa.array([Decimal("1.50"), None]), [0, 0]),
        (pa.array([dt.date(2026, 1, 1), None]), [0, 0]),
        (pa.array([dt.datetime(2026, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", tz="UTC")), [3, 0]),
    ],
)
def test_the_parts_never_change(keys: pa.Array, expected: list[int]) -> None:
    # State on disk depends on these numbers.
    assert part_of_each(keys, PARTS).tolist() == expected


def test_keys_are_spread() -> None:
    numbers = part_of_each(pa.array(range(10_000), pa.int64()), 8)
    texts = part_of_each(pa.array([f"key {n}" for n in range(10_000)]), 8)
    for found in (numbers, texts):
        assert np.bincount(found, minlength=8).min() > 1000
