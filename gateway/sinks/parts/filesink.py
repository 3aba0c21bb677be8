"""The file sink: parts appear atomically, once, and their sorted names give the order of release."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import ReleasedRows
from gateway.sinks.parts import manifest as manifests
from gateway.sinks.rows import json_lines
from infra.failpoints import reached
from infra.statefiles import sync_folder


@dataclass(frozen=True, slots=True)
class PartName:
    """The fields of ``<release number>-<first seq>-<last seq>[.late].<format>``."""

    release: int
    first_seq: int
    last_seq: int
    late: bool
    format: str

    def __str__(self) -> str:
        late = ".late" if self.late else ""
        return f"{self.release:010d}-{self.first_seq:012d}-{self.last_seq:012d}{late}.{self.format}"

    @classmethod
    def parse(cls, name: str) -> PartName | None:
        """Return the fields of a part's file name, None for any other file."""
        stem, _, suffix = name.partition(".")
        late, _, ending = suffix.rpartition(".")
        numbers = stem.split("-")
        if len(numbers) != 3 or not all(number.isdigit() for number in numbers) or late not in ("", "late"):
            return None
        return cls(int(numbers[0]), int(numbers[1]), int(numbers[2]), late == "late", ending)


class FileSink:
    """Writes releases of one query to a folder. Its methods block: call them in a thread, one at a time.

    Args:
        folder: created if it does not exist.
        owner: identity of the state that numbers the seqs.
        format: JSON lines or Parquet.
        ordered: True starts a new part at every gap, so that each part is one interval.
    """

    def __init__(self, folder: Path, *, owner: str, format: Literal["jsonl", "parquet"], ordered: bool) -> None:  # noqa: A002 -- the config's word
        self.folder = folder
        self._owner = owner
        self._format = format
        self._ordered = ordered
        self._pending: manifests.PendingPart | None = None
        self.committed, self._next_release = manifests.recover(folder, owner)

    def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:  # noqa: ARG002 -- a folder keeps no source position
        """Make ``releases`` (in order of release) durable and visible, with the intervals they cover.

        Raises:
            OSError: nothing of the part that failed is visible; pass the same releases again, and committed ones are
                skipped.
        """
        self._settle()
        new = [release for release in releases if not self.committed.covers(release.first_seq, release.last_seq)]
        for group in split_parts(new, contiguous=self._ordered):
            self._commit_part(group)

    def _commit_part(self, group: Sequence[ReleasedRows]) -> None:
        intervals = IntervalSet((release.first_seq, release.last_seq) for release in group)
        name = str(
            PartName(
                self._next_release,
                min(release.first_seq for release in group),
                max(release.last_seq for release in group),
                group[0].late,
                self._format,
            )
        )
        temporary = f".{name}.tmp"
        with (self.folder / temporary).open("wb") as file:
            write_part(file, [release.item for release in group], self._format)
            file.flush()
            os.fsync(file.fileno())
        # A manifest whose temporary file is gone means that the part is visible, so the file must be durable before the
        # manifest.
        sync_folder(self.folder)
        self._pending = manifests.PendingPart(name, temporary, list(intervals))
        manifests.save(
            self.folder, manifests.Manifest(self._owner, self._next_release, list(self.committed), self._pending)
        )
        reached("sink.commit.prepared")
        (self.folder / temporary).rename(self.folder / name)
        reached("sink.commit.visible")
        self._settle()

    def _settle(self) -> None:
        """Count the pending part as committed if it has its final name; a commit that failed may have come that far."""
        if self._pending is None:
            return
        if not (self.folder / self._pending.temporary).exists():
            sync_folder(self.folder)
            # A new set, since the event loop may read the old one meanwhile.
            self.committed = IntervalSet([*self.committed, *self._pending.intervals])
            self._next_release += 1
        self._pending = None

    def close(self) -> None:
        """Merge the last part into the manifest."""
        self._settle()
        manifests.save(self.folder, manifests.Manifest(self._owner, self._next_release, list(self.committed)))


def write_part(file: BinaryIO, batches: Sequence[pa.RecordBatch], format: Literal["jsonl", "parquet"]) -> None:  # noqa: A002 -- the config's word
    """Write the rows of ``batches`` (at least one, all of one schema) as the content of a part."""
    if format == "parquet":
        with pq.ParquetWriter(file, batches[0].schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
    else:
        for batch in batches:
            file.write(json_lines(batch))


def split_parts(releases: Sequence[ReleasedRows], *, contiguous: bool) -> list[list[ReleasedRows]]:
    """Split releases into parts: late ones apart, and with ``contiguous`` a new part after every gap."""
    parts: list[list[ReleasedRows]] = []
    for release in releases:
        last = parts[-1][-1] if parts else None
        fits = last is not None and (
            not contiguous or (release.late == last.late and release.first_seq == last.last_seq + 1)
        )
        if fits:
            parts[-1].append(release)
        else:
            parts.append([release])
    return parts
