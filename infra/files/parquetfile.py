"""Parquet files, row group by row group, and each of those in small batches."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from infra.files.base import FilePlace
from infra.files.columns import BatchReader, Conformer, Extent
from infra.rows.base import SourceError

_BATCH_BYTES = 4 << 20
_BATCH_ROWS_MAX = 16_384
_READ_BYTES = 1 << 18


def open_parquet(
    path: FilePlace, schema: pa.Schema, *, strict: bool = False, batch_bytes: int = _BATCH_BYTES
) -> BatchReader:
    """Open a Parquet file; a place in it is found by the row groups in its footer.

    Args:
        path: the file.
        schema: of the events.
        strict: the file must have exactly the schema's columns.
        batch_bytes: about so much is read at a time, at least a row.

    Raises:
        SourceError: it is not a Parquet file, or does not fit the query.
    """
    source = path if isinstance(path, Path) else path.open("rb")
    try:
        # Without a buffer size a row group's columns are read as a whole.
        file = pq.ParquetFile(source, pre_buffer=False, buffer_size=_READ_BYTES)
    except (pa.ArrowException, OSError) as error:
        raise SourceError(f"{path} cannot be read as Parquet ({error}): restore the file") from error
    try:
        conformer = Conformer(path, file.schema_arrow, schema, strict=strict)
    except SourceError:
        file.close()
        raise
    groups = [file.metadata.row_group(i) for i in range(file.metadata.num_row_groups)]
    starts = list(accumulate((group.num_rows for group in groups), initial=0))

    def batches_from(row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        for at in range(max(0, bisect_right(starts, row) - 1), len(groups)):
            first = starts[at]
            row_bytes = max(1, groups[at].total_byte_size // max(1, groups[at].num_rows))
            size = min(_BATCH_ROWS_MAX, max(1, batch_bytes // row_bytes))
            for batch in file.iter_batches(size, row_groups=[at], columns=conformer.wanted, use_threads=False):
                yield first, batch
                first += batch.num_rows

    extent = Extent(starts, sum(group.total_byte_size for group in groups))
    return BatchReader(path, batches_from, conformer, file.close, lambda: extent)
