"""Reads ranges of files and decodes them, wherever they are reached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pyarrow as pa

from infra.files.base import FilePlace, FileReader, Portion, with_name, without_name
from infra.files.choosing import open_by_name
from infra.files.objects import ObjectAt, objects_of
from infra.files.sameness import difference
from infra.messages import FileRange, FileReading
from infra.objectstore.base import (
    ForeignObjects,
    ListedObject,
    ReplacedError,
    StoreRefusedError,
    StoreUnavailableError,
)
from infra.rows.base import SourceError, SourceUnavailableError

_OPEN_MOST: Final = 8
_UNBOUNDED_BYTES: Final = 1 << 62


class FileRangeReader:
    """Reads what one query reads. The last files stay open: consecutive ranges of one are read in one go.

    The methods block; one call at a time.

    Args:
        reading: where the files are.
        schema: of the events.
    """

    def __init__(self, reading: FileReading, schema: pa.Schema) -> None:
        self._reading = reading
        self._schema = schema
        self._in_file = without_name(schema) if reading.named else schema
        self._open: OrderedDict[tuple[object, ...], FileReader] = OrderedDict()
        self._objects: ForeignObjects | None = None

    def read(self, each: FileRange) -> Portion:
        """Return the records of a range.

        Raises:
            SourceError: the file is not the one that was listed, or cannot be read.
            SourceUnavailableError: or OSError: not now.
        """
        try:
            with _in_source_words(each.name):
                return self._read(each)
        except BaseException:
            self.close()  # the next try begins anew
            raise

    def _read(self, each: FileRange) -> Portion:
        reader = self._opened(each)
        end = each.end if each.end >= 0 else each.size_bytes
        reader.stop_at(None if end < 0 else end)
        reader.seek(each.begin)
        if reader.at_end():
            raise self._changed(each, 0)
        portion = reader.read(each.records, _UNBOUNDED_BYTES)
        if portion.records != each.records or each.end not in (-1, portion.end):
            raise self._changed(each, portion.records)
        return replace(portion, batch=with_name(portion.batch, self._schema, each.name))

    def close(self) -> None:
        """Close all files."""
        while self._open:
            self._open.popitem()[1].close()

    def _opened(self, each: FileRange) -> FileReader:
        place = self._place(each)
        key: tuple[object, ...] = (each.name, each.size_bytes, each.digest)
        if isinstance(place, Path):
            found = place.stat()  # another file may have its name now
            key = (*key, found.st_dev, found.st_ino, found.st_mtime_ns)
        if key not in self._open:
            if len(self._open) >= _OPEN_MOST:
                self._open.popitem(last=False)[1].close()
            self._open[key] = open_by_name(place, self._in_file, strict=self._reading.strict)
        self._open.move_to_end(key)
        return self._open[key]

    def _place(self, each: FileRange) -> FilePlace:
        """Return where a file is, if it is still the one that was listed."""
        if self._reading.bucket is not None:
            if self._objects is None:
                self._objects = objects_of(self._reading.bucket)
            return ObjectAt(self._objects, ListedObject(each.name, each.size_bytes, each.digest))
        path = Path(self._reading.folder, each.name)
        try:
            other = difference(path, each.size_bytes, each.changed_ns, each.digest)
        except FileNotFoundError as error:
            raise SourceError(
                f"{path} is not there: restore it; it must lie at the same path wherever it is read"
            ) from error
        if other:
            raise SourceError(f"{path} {other}: restore it; a file must stay as it is until all of it is processed")
        return path

    def _changed(self, each: FileRange, found: int) -> SourceError:
        return SourceError(
            f"{each.name} had {each.records} records from offset {each.begin} on when its lines or rows were counted, "
            f"and has {found} there now: restore it"
        )


def can_read(reading: FileReading) -> bool:
    """Return whether this machine reaches the files. Blocks.

    Raises:
        ImportError: it lacks the client of S3.
    """
    if reading.bucket is None:
        return Path(reading.folder).is_dir()
    try:
        next(iter(objects_of(reading.bucket).listed()), None)
    except (StoreRefusedError, StoreUnavailableError):
        return False
    return True


@contextmanager
def _in_source_words(name: str) -> Iterator[None]:
    try:
        yield
    except ReplacedError as error:
        raise SourceError(
            f"{name} {error}: restore it; an object must stay as it is until all of it is processed"
        ) from error
    except StoreRefusedError as error:
        raise SourceError(str(error)) from error
    except StoreUnavailableError as error:
        raise SourceUnavailableError(str(error)) from error
