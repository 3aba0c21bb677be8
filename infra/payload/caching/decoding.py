"""Decodes runs with selections, and keeps events for those that come after."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from infra.messages import SELECTIONS
from infra.payload.caching.encoding import LENGTH, PLACES
from infra.payload.caching.placement import Int64Array, Marks, Placement, unpacked
from infra.payload.decoder import DEFAULT_MAX_BYTES, Decoder
from infra.payload.errors import PayloadError
from infra.payload.marks import marks_column

_EVENTS_MOST: Final = 50_000_000


class CachingDecoder:
    """Decodes the payloads of a ``CachingEncoder``; not thread-safe.

    Args:
        schema: of every batch returned; its last column has the marks.
        max_bytes: the largest size that one payload may unpack to, and that the kept events may have.
    """

    def __init__(self, schema: pa.Schema, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._schema = schema
        self._max_bytes = max_bytes
        events = schema.remove(schema.get_field_index(SELECTIONS))
        self._decoder = Decoder(events, max_bytes=max_bytes)
        self._places = Decoder(PLACES, max_bytes=max_bytes)
        self._cached = pa.RecordBatch.from_pylist([], schema=events)

    def add_dictionary(self, field: str, dictionary_id: int, data: bytes) -> None:
        """See ``Decoder``."""
        self._decoder.add_dictionary(field, dictionary_id, data)

    def decode(self, payload: bytes | memoryview) -> pa.RecordBatch:
        """Return a run.

        Raises:
            PayloadError: anything about the payload is wrong; bad bytes cause no other error.
        """
        view = memoryview(payload)
        places_end = LENGTH.size + (LENGTH.unpack_from(view)[0] if len(view) >= LENGTH.size else len(view))
        if places_end > len(view):
            raise PayloadError(f"the places of a run do not fit its payload of {len(view)} bytes")
        places = self._places.decode(view[LENGTH.size : places_end]).column(0)
        if places.null_count:
            raise PayloadError("a place is missing")
        new = self._decoder.decode(view[places_end:])
        cached = self._cached
        placement = unpacked(places.to_numpy(), cached.num_rows, new.num_rows, _EVENTS_MOST)
        everything = _together(cached, new, placement.new)
        run = _at(everything, placement.rows)
        marks = _column(placement.marks, run.num_rows)
        self._keep(everything, placement)
        return pa.RecordBatch.from_arrays([*run.columns, marks], schema=self._schema)

    def _keep(self, everything: pa.RecordBatch, placement: Placement) -> None:
        kept = everything.slice(placement.forgotten)
        if kept.nbytes > self._max_bytes:
            raise PayloadError(f"a lane shall keep {kept.nbytes:,} bytes of events, and {self._max_bytes:,} may be")
        self._cached = kept


def _together(cached: pa.RecordBatch, new: pa.RecordBatch, places: Int64Array) -> pa.RecordBatch:
    """Return all events in order, in memory of their own: what is forgotten must not stay in memory."""
    everything = pa.concat_batches([cached, new])
    if not len(places) or places[0] == cached.num_rows:
        return everything
    count = everything.num_rows
    order = np.empty(count, dtype=np.int64)
    is_new = np.zeros(count, dtype=np.bool_)
    is_new[places] = True
    order[is_new] = cached.num_rows + np.arange(len(places))
    order[~is_new] = np.arange(cached.num_rows)
    return everything.take(pa.array(order))


def _at(events: pa.RecordBatch, places: Int64Array) -> pa.RecordBatch:
    """Return some of the events; without a copy if they follow each other."""
    if len(places) and places[-1] - places[0] == len(places) - 1:
        return events.slice(int(places[0]), len(places))
    return events.take(pa.array(places))


def _column(marks: Marks, rows: int) -> pa.Array:
    """Return the column of marks.

    Raises:
        PayloadError: one is beyond the run.
    """
    if np.any(marks.row < 0) or np.any(marks.row >= rows) or np.any(np.diff(marks.row) <= 0):
        raise PayloadError(f"a selection begins outside its run of {rows} events")
    return marks_column(rows, *marks)
