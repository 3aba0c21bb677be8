"""Encodes runs with selections for a lane that keeps events: only those that it does not have are sent."""

from __future__ import annotations

import struct
from typing import Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from infra.messages import SELECTIONS
from infra.payload.caching.placement import Int64Array, Marks, packed, placed
from infra.payload.codecs.choose import Codec
from infra.payload.codecs.policy import CodecPolicy
from infra.payload.encoder import Encoded, Encoder

LENGTH: Final = struct.Struct("<I")
PLACES: Final = pa.schema({"places": pa.int64()})
CACHE_BYTES: Final = 32 << 20
"""A lane keeps at most so many bytes of a query's events, as they were before they were trimmed."""


class CachingEncoder:
    """Encodes the runs of one query with selections for one lane; not thread-safe.

    A payload is that of the places (see ``Placement``), after its length, and that of the new events.

    Args:
        encoder: for events.
        cache_bytes: the lane keeps events of about so many bytes.
    """

    def __init__(self, encoder: Encoder, cache_bytes: int = CACHE_BYTES) -> None:
        self._encoder = encoder
        self._places = Encoder(PLACES, codecs=CodecPolicy("zstd"))
        self._cache_bytes = cache_bytes
        self._cached = self._next = np.zeros(0, dtype=np.int64)

    def encode(self, run: pa.RecordBatch, seqs: Int64Array, open_from: int) -> Encoded:
        """Return what the lane needs for a run. Call ``sent`` once it was sent, and before the next run is encoded.

        Args:
            run: the events, each once, in order of seq; the last column has the marks.
            seqs: of the events, shape (rows,).
            open_from: later runs need no event before this seq.
        """
        events = run.drop_columns([SELECTIONS])
        most_events = self._cache_bytes // max(1, events.nbytes // max(1, events.num_rows))
        found = placed(self._cached, seqs, open_from, most_events, _marks(run.column(SELECTIONS)))
        new = events if bool(found.is_new.all()) else events.filter(pa.array(found.is_new))
        encoded = self._encoder.encode(new)
        places = self._places.encode(pa.record_batch([pa.array(packed(found.placement))], schema=PLACES)).payload
        self._next = found.cached
        return msgspec.structs.replace(
            encoded,
            payload=b"".join((LENGTH.pack(len(places)), places, encoded.payload)),
            rows=run.num_rows,
            raw_bytes=int(pa.ipc.get_record_batch_size(run)),
        )

    def sent(self) -> None:
        """Note that the lane has the events of the run that was encoded last."""
        self._cached = self._next

    def choices(self) -> dict[str, Codec]:
        """See ``Encoder``."""
        return self._encoder.choices()


def _marks(column: pa.Array) -> Marks:
    rows = np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False))
    return Marks(rows, *(column.field(index).to_numpy(zero_copy_only=False)[rows] for index in range(2)))
