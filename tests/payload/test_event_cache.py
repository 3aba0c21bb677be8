"""Runs with selections cross the link as the events that the lane does not have, and come out as they were."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.messages import SELECTIONS
from infra.payload import CodecPolicy, Encoder, PayloadError
from infra.payload.caching import CachingDecoder, CachingEncoder
from infra.payload.caching.placement import Marks, packed, placed, unpacked
from infra.payload.marks import with_marks

EVENTS = pa.schema({"id": pa.int64(), "text": pa.string()})
RUNS = with_marks(EVENTS)
BYTES_EACH = 40
MOST = 1_000
RELAXED = settings(max_examples=300, deadline=None)


def run_of(seqs: list[int], begins: set[int]) -> pa.RecordBatch:
    """Return a run with these events, some of which begin a selection."""
    rows = [
        {
            "id": seq,
            "text": None if seq % 7 == 0 else f"event {seq}",
            SELECTIONS: {"number": seq, "events": len(seqs) - row} if seq in begins else None,
        }
        for row, seq in enumerate(seqs)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=RUNS)


def encoder(cache_bytes: int = 1 << 20) -> CachingEncoder:
    return CachingEncoder(Encoder(EVENTS, codecs=CodecPolicy.parse("zstd")), cache_bytes)


def seqs_of(run: pa.RecordBatch) -> Any:
    return run.column("id").to_numpy()


@given(
    st.lists(
        st.tuples(st.sets(st.integers(0, 40), max_size=25), st.integers(0, 40), st.booleans()), min_size=1, max_size=8
    ),
    st.sampled_from([0, 5 * BYTES_EACH, 1 << 20]),
    st.randoms(use_true_random=False),
)
@RELAXED
def test_each_run_comes_out_as_it_was(runs: list[tuple[set[int], int, bool]], cache_bytes: int, random: Any) -> None:
    there, here = CachingDecoder(RUNS), encoder(cache_bytes)
    for chosen, open_from, is_sent in runs:
        seqs = sorted(chosen)
        run = run_of(seqs, {seq for seq in seqs if random.random() < 0.5})
        encoded = here.encode(run, seqs_of(run), open_from)
        assert encoded.rows == len(seqs)
        if is_sent:  # else another lane was faster
            assert there.decode(encoded.payload).equals(run)
            here.sent()


def test_an_event_is_sent_once_while_selections_need_it() -> None:
    cached, sent = np.zeros(0, dtype=np.int64), list[int]()
    nothing = Marks(cached, cached, cached)
    for end in range(10, 200, 3):
        seqs = np.arange(end - 10, end)
        found = placed(cached, seqs, end - 7, MOST, nothing)
        sent += seqs[found.is_new].tolist()
        cached = found.cached
        assert cached.tolist() == list(range(end - 7, end))
    assert sent == list(range(sent[-1] + 1))


def test_a_late_run_gets_what_the_lane_has_forgotten() -> None:
    there, here = CachingDecoder(RUNS), encoder()
    for seqs, open_from in (([5, 6, 7, 8], 7), ([1, 2, 7], 7), ([1, 7, 8, 9], 0)):
        run = run_of(seqs, {seqs[0]})
        encoded = here.encode(run, seqs_of(run), open_from)
        assert there.decode(encoded.payload).equals(run)
        here.sent()


@given(
    st.sets(st.integers(0, 60)),
    st.sets(st.integers(0, 60)),
    st.integers(0, 70),
    st.integers(0, 70),
)
@RELAXED
def test_a_placement_survives_its_packing(cached: set[int], run: set[int], open_from: int, most: int) -> None:
    before, seqs = (np.array(sorted(each), dtype=np.int64) for each in (cached, run))
    marks = Marks(*(np.arange(len(seqs), dtype=np.int64) for _ in range(3)))
    found = placed(before, seqs, open_from, most, marks)
    again = unpacked(packed(found.placement), len(before), int(found.is_new.sum()), MOST)
    for one, other in ((again.new, found.placement.new), (again.rows, found.placement.rows)):
        assert one.tolist() == other.tolist()
    assert again.forgotten == found.placement.forgotten
    assert [each.tolist() for each in again.marks] == [each.tolist() for each in marks]
    everything = sorted(cached | run)
    assert [everything[place] for place in again.rows] == seqs.tolist()
    kept = [seq for seq in everything if seq >= open_from]
    assert found.cached.tolist() == kept[max(0, len(kept) - most) :]


@given(st.lists(st.integers(-3, 12) | st.integers(-(2**63), 2**63 - 1), max_size=24))
@RELAXED
def test_a_hostile_placement_is_refused_or_within_bounds(numbers: list[int]) -> None:
    try:
        found = unpacked(np.array(numbers, dtype=np.int64), 6, 3, 100)
    except PayloadError:
        return
    for places in (found.new, found.rows):
        assert all(0 <= place < 9 for place in places)
        assert all(one < other for one, other in pairwise(places.tolist()))
    assert len(found.new) == 3
    assert 0 <= found.forgotten <= 9


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ([], "no placement"),
        ([0, 0, 0, -1], "no placement"),
        ([1, 0, 0, 0, 0], "another length"),
        ([1, 0, 0, 0, 0, 2], "2 have a place"),
        ([1, 0, 0, 10, 0, 3], "to be forgotten"),
        ([1, 1, 0, 0, 0, 3, 8, 2], "do not ascend"),
        ([1, 1, 0, 0, 0, 3, 10, 1], "not among the 9"),
    ],
)
def test_why_a_placement_is_refused(head: list[int], why: str) -> None:
    with pytest.raises(PayloadError, match=why):
        unpacked(np.array(head, dtype=np.int64), 6, 3, 100)


@given(st.data())
@RELAXED
def test_damaged_payloads_cause_no_other_error(data: st.DataObject) -> None:
    run = run_of([1, 2, 5], {1, 5})
    good = encoder().encode(run, seqs_of(run), 0).payload
    at = data.draw(st.integers(0, len(good) - 1))
    bad = data.draw(
        st.sampled_from([good[:at], good[:at] + bytes([data.draw(st.integers(0, 255))]) + good[at + 1 :], good[at:]])
    )
    try:
        assert CachingDecoder(RUNS).decode(bad).num_columns == len(RUNS)
    except PayloadError:
        return


def test_no_selection_begins_outside_its_run() -> None:
    run = run_of([1, 2], {1})
    beyond = Marks(*(np.array([2], dtype=np.int64) for _ in range(3)))
    plain = placed(np.zeros(0, dtype=np.int64), seqs_of(run), 0, MOST, beyond)
    places = Encoder(pa.schema({"places": pa.int64()}), codecs=CodecPolicy("zstd"))
    head = places.encode(pa.record_batch({"places": pa.array(packed(plain.placement))})).payload
    events = Encoder(EVENTS, codecs=CodecPolicy("zstd")).encode(run.drop_columns([SELECTIONS])).payload
    with pytest.raises(PayloadError, match="begins outside its run of 2 events"):
        CachingDecoder(RUNS).decode(len(head).to_bytes(4, "little") + head + events)


def test_a_lane_keeps_no_more_than_may_be() -> None:
    there, here = CachingDecoder(RUNS, max_bytes=2_000), encoder()
    refused = None
    for begin in range(0, 1_000, 20):
        run = run_of(list(range(begin, begin + 20)), set())
        encoded = here.encode(run, seqs_of(run), 0)
        try:
            there.decode(encoded.payload)
        except PayloadError as error:
            refused = error
            break
        here.sent()
    assert refused is not None
    assert "bytes of events, and 2,000 may be" in str(refused)
