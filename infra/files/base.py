"""What every reader of a file returns, and how it is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO, Literal, Protocol

import pyarrow as pa

FILE_COLUMN = "_file"


class FilePlace(Protocol):
    """A file that can be opened: a path, or an object elsewhere. Its text is for messages."""

    @property
    def name(self) -> str:
        """Its name, without the folder."""
        ...

    @property
    def suffix(self) -> str:
        """The end of its name, from the last dot on."""
        ...

    def open(self, mode: Literal["rb"]) -> BinaryIO:
        """Open it for reading anywhere.

        Raises:
            FileNotFoundError: it is gone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """A record of a portion that is not an event; ``index`` counts from the portion's first record."""

    index: int
    offset: int
    reason: str
    raw: bytes
    place: str = ""


@dataclass(frozen=True, slots=True)
class Portion:
    """Consecutive records of one file.

    Attributes:
        batch: the events.
        records: the number of records, with those that are not events.
        end: offset of the next record.
        dead: the records that could not be decoded, in order.
        blank: indices of empty records (an empty line).
    """

    batch: pa.RecordBatch
    records: int
    end: int
    dead: tuple[Refused, ...] = ()
    blank: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """Consecutive records of one file that were not read: how many, and the offset of the next one."""

    records: int
    end: int


class FileReader(Protocol):
    """One open file. ``offset`` is 0 at its first record and otherwise the end of a portion."""

    @property
    def can_skip(self) -> bool:
        """Whether records can be counted and found without decoding those before them."""
        ...

    def seek(self, offset: int) -> None:
        """Continue at ``offset``."""
        ...

    def stop_at(self, end: int | None) -> None:
        """Read no further than this offset, which may save reading; None: to the end of the file."""
        ...

    def at_end(self) -> bool:
        """Return whether no record is left."""
        ...

    def read(self, max_records: int, max_bytes: int) -> Portion:
        """Return the next records, at least one; not at the end.

        Raises:
            SourceError: the file cannot be read to its end.
        """
        ...

    def skip(self, max_records: int, max_bytes: int) -> Skipped:
        """Pass over the next records, at least one, without decoding them; not at the end. See ``can_skip``.

        Raises:
            SourceError: the file cannot be read to its end.
        """
        ...

    def close(self) -> None:
        """Close the file."""
        ...


def without_name(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a schema that are in files themselves: all but ``_file``."""
    return pa.schema([field for field in schema if field.name != FILE_COLUMN])


def with_name(batch: pa.RecordBatch, schema: pa.Schema, name: str) -> pa.RecordBatch:
    """Return events of the file ``name`` with the column ``_file``, if the schema has one that the batch lacks."""
    if len(batch.schema) == len(schema):
        return batch
    names = pa.array([name] * batch.num_rows, pa.string()).cast(schema.field(FILE_COLUMN).type)
    columns = [names if column == FILE_COLUMN else batch.column(column) for column in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
