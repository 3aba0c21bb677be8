"""Divides a run among the parts of a keyed query, by a hash of the key that never changes."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gateway.query.flow.run import Run
from infra.messages import HEARTBEAT, STREAM, Predicate
from infra.payload import kept_rows
from policies.arrays import IntArray

_MIX = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: neighbours come into different parts


def part_of_each(keys: pa.Array, parts: int) -> IntArray:
    """Return the part of each event.

    State on disk depends on the result: it must be the same in every version and on every machine.

    Args:
        keys: the key of each event; null is a key, too.
        parts: how many parts there are.

    Returns:
        Numbers of parts from 0, shape (events,).
    """
    if pa.types.is_temporal(keys.type):
        keys = keys.cast(pa.int32() if keys.type.bit_width == 32 else pa.int64())
    if pa.types.is_integer(keys.type):
        mixed = pc.fill_null(keys.cast(pa.int64()), 0).to_numpy(zero_copy_only=False).astype(np.uint64) * _MIX
        return np.asarray((mixed >> np.uint64(32)) % np.uint64(parts), dtype=np.intp)
    coded = keys.dictionary_encode()
    texts = coded.dictionary
    if not pa.types.is_binary(keys.type):
        texts = texts.cast(pa.string()).cast(pa.binary())
    sums = np.fromiter(map(zlib.crc32, texts.to_pylist()), np.uint32, len(texts))
    of_value = np.append(sums % parts, 0).astype(np.intp)  # the last element is that of null
    found: IntArray = of_value[pc.fill_null(coded.indices, len(texts)).to_numpy(zero_copy_only=False)]
    return found


def split(
    run: Run, key: str, parts: int, time_columns: Mapping[str, str], predicates: Sequence[Predicate] = ()
) -> list[Run]:
    """Return what each part gets of a run.

    Each watermark of each part moves on with the newest event of the whole run that Spark lets pass below it: a part
    that does not have that event gets a copy of it as a heartbeat. A part without any other row gets a row all the
    same, since an engine host answers each run.

    Args:
        run: the run, undivided.
        key: the column of the key.
        parts: how many parts there are.
        time_columns: the event-time column of each stream that has one; the only stream of a query has an empty name.
        predicates: the conditions that Spark evaluates before it computes the watermark.
    """
    part_of = part_of_each(run.batch.column(key), parts)
    newest = _newest(run.batch, time_columns, predicates)
    counts = np.bincount(part_of, minlength=parts)
    ends = np.cumsum(counts)
    ordered: IntArray = np.argsort(part_of.astype(np.uint16), kind="stable")
    rows = [ordered[end - count : end] for end, count in zip(ends, counts, strict=True)]
    heartbeats = [_heartbeats(newest[part_of[newest] != part], mine) for part, mine in enumerate(rows)]
    raw_bytes = np.diff(np.append(0, ends) * run.raw_bytes // run.events)
    return [
        Run(run.first_seq, run.last_seq, batch, run.arrival_s, int(raw_bytes[part]), seqs=run.first_seq + rows[part])
        for part, batch in enumerate(_batches(run.batch, rows, heartbeats))
    ]


def _heartbeats(newest: IntArray, rows: IntArray) -> IntArray:
    """Return the rows that a part gets as heartbeats."""
    if not len(newest) and not len(rows):
        return np.zeros(1, dtype=np.intp)  # no row of this run moves a watermark, so neither does this one
    return newest


def _newest(batch: pa.RecordBatch, time_columns: Mapping[str, str], predicates: Sequence[Predicate]) -> IntArray:
    """Return the rows that move the watermarks on most, at most one for each stream."""
    if not time_columns:
        return np.empty(0, dtype=np.intp)
    passing = kept_rows(batch, tuple(predicates))
    found = []
    for stream, column in time_columns.items():
        rows = passing
        if stream:
            of_stream = pc.equal(batch.column(STREAM), stream).fill_null(False).to_numpy(zero_copy_only=False)
            rows = passing[of_stream[passing]]
        times = batch.column(column).take(pa.array(rows))
        newest = pc.max(times)
        if newest.is_valid:
            found.append(int(rows[pc.index(times, newest).as_py()]))
    return np.asarray(found, dtype=np.intp)


def _batches(batch: pa.RecordBatch, rows: Sequence[IntArray], heartbeats: Sequence[IntArray]) -> list[pa.RecordBatch]:
    """Return each part's rows, and after them its heartbeats, marked: slices of one batch, which is made once."""
    pieces = [piece for pair in zip(rows, heartbeats, strict=True) for piece in pair]
    lengths = np.array([len(piece) for piece in pieces])
    marks = np.repeat(np.arange(len(pieces)) % 2 == 1, lengths)
    whole = batch.take(pa.array(np.concatenate(pieces))).append_column(HEARTBEAT, pa.array(marks))
    ends = np.cumsum(lengths)[1::2].tolist()
    return [whole.slice(start, end - start) for start, end in zip([0, *ends], ends, strict=False)]
