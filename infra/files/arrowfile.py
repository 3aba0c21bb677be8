"""Arrow IPC files and streams, record batch by record batch."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import pyarrow as pa

from infra.files.base import FilePlace
from infra.files.columns import BatchReader, Conformer, Extent
from infra.rows.base import SourceError

_FILE_MAGIC = b"ARROW1"


def open_arrow(path: FilePlace, schema: pa.Schema, *, strict: bool = False) -> BatchReader:
    """Open an Arrow file or stream.

    At least one record batch is in memory. In a file, the sizes of its batches locate a row; a stream must be read from
    its beginning.

    Raises:
        SourceError: it is neither, or does not fit the query.
    """
    with path.open("rb") as raw:
        is_file = raw.read(len(_FILE_MAGIC)) == _FILE_MAGIC
    opened = pa.OSFile(str(path), "rb") if isinstance(path, Path) else pa.PythonFile(path.open("rb"), "r")
    try:
        return (_open_file if is_file else _open_stream)(path, opened, schema, strict)
    except (pa.ArrowException, OSError) as error:
        opened.close()
        raise SourceError(f"{path} cannot be read as Arrow ({error}): restore the file") from error
    except SourceError:
        opened.close()
        raise


def _open_file(path: FilePlace, opened: pa.NativeFile, schema: pa.Schema, strict: bool) -> BatchReader:
    found = pa.ipc.open_file(opened).schema
    conformer = Conformer(path, found, schema, strict=strict)
    file = pa.ipc.open_file(opened, options=_only(found, conformer.wanted))
    starts: list[int] = []

    def batches_from(row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        extent()
        for at in range(max(0, bisect_right(starts, row) - 1), file.num_record_batches):
            yield starts[at], file.get_batch(at)

    def extent() -> Extent:
        if not starts:
            starts.extend(_starts(opened, found))
        return Extent(starts, opened.size())

    return BatchReader(path, batches_from, conformer, opened.close, extent)


def _starts(opened: pa.NativeFile, found: pa.Schema) -> list[int]:
    """Return the first row of each batch and the end; reads only one narrow column for it."""
    narrow = next((f.name for f in found if pa.types.is_primitive(f.type)), found.names[0])
    file = pa.ipc.open_file(opened, options=_only(found, [narrow]))
    return list(accumulate((file.get_batch(i).num_rows for i in range(file.num_record_batches)), initial=0))


def _open_stream(path: FilePlace, opened: pa.NativeFile, schema: pa.Schema, strict: bool) -> BatchReader:
    found = pa.ipc.open_stream(opened).schema
    conformer = Conformer(path, found, schema, strict=strict)

    def batches_from(row: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        opened.seek(0)
        first = 0
        for batch in pa.ipc.open_stream(opened, options=_only(found, conformer.wanted)):
            if row < first + batch.num_rows:
                yield first, batch
            first += batch.num_rows

    return BatchReader(path, batches_from, conformer, opened.close)


def _only(found: pa.Schema, names: list[str]) -> pa.ipc.IpcReadOptions:
    indices = sorted(found.get_field_index(name) for name in names)
    return pa.ipc.IpcReadOptions(included_fields=indices, use_threads=False)
