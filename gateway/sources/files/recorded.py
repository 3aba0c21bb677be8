"""The recorded times of a file, read ahead so that a replay knows when each record is due."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from gateway.sources.files.reading.passes import PassesSource
from infra.files.base import Portion
from infra.rows.base import SourceError

# 8 bytes each in memory, and twice that while they are read.
RECORDS_MAX: Final = 50_000_000
_RECORDS_PER_READ = 50_000
_BYTES_PER_READ = 8 << 20
MISSING: Final = np.iinfo(np.int64).min


def times_of_files(source: PassesSource, field: pa.Field, records_max: int = RECORDS_MAX) -> npt.NDArray[np.int64]:
    """Return the time of every record in one pass over ``source``, as ``joined_times`` does.

    Args:
        source: not opened; it is closed again.
        field: the column.
        records_max: how many records it may have.

    Raises:
        SourceError: a file cannot be read, or there are too many records.
    """
    source.open(pa.schema([field.with_nullable(True)]))
    try:
        portions = iter(lambda: source.read_portion(_RECORDS_PER_READ, _BYTES_PER_READ), None)
        return joined_times((_times(portion) for portion in portions if portion is not None), records_max)
    finally:
        source.close()


def joined_times(pieces: Iterable[npt.NDArray[np.int64]], records_max: int = RECORDS_MAX) -> npt.NDArray[np.int64]:
    """Return times in microseconds since 1970, never falling: a missing or falling time becomes the one before it.

    Raises:
        SourceError: there are too many.
    """
    times = np.empty(1 << 12, np.int64)
    count = 0
    for piece in pieces:
        if count + len(piece) > records_max:
            raise SourceError(
                f"recorded times are kept in memory for at most {records_max} records, and the source has more: "
                "replay it at a rate, or split it into parts that are replayed one after the other"
            )
        while count + len(piece) > len(times):
            times = np.concatenate([times, np.empty(len(times), np.int64)])
        times[count : count + len(piece)] = piece
        count += len(piece)
    times = times[:count].copy()
    known = times[times != MISSING]
    if count and known.size:
        times[0] = known[0] if times[0] == MISSING else times[0]
        np.maximum.accumulate(times, out=times)
    elif count:
        times[:] = 0
    return times


def column_times(column: pa.Array) -> npt.NDArray[np.int64]:
    """Return a TIMESTAMP column in microseconds since 1970; a null is ``MISSING``."""
    micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
    return np.asarray(pc.fill_null(micros, MISSING).to_numpy(zero_copy_only=False), np.int64)


def _times(portion: Portion) -> npt.NDArray[np.int64]:
    found = column_times(portion.batch.column(0))
    none = [*(refused.index for refused in portion.dead), *portion.blank]
    if not none:
        return found
    times = np.full(portion.records, MISSING, np.int64)
    times[np.setdiff1d(np.arange(portion.records), np.array(none, np.int64))] = found
    return times
