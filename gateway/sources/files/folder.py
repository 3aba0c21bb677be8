"""A folder in which files appear."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from gateway.sources.files.listed import WantedNames
from gateway.sources.files.notes import NotedFile
from gateway.sources.files.reading.passes import FoundFile
from infra.files.sameness import difference, ends_digest
from infra.rows.base import SourceError

LOOK_EVERY_S = 0.25


class Folder:
    """A ``Storage`` on this machine.

    A file must be complete when it appears (written elsewhere, then renamed).

    Args:
        path: the folder.
    """

    look_every_s = LOOK_EVERY_S

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names = WantedNames(str(path))
        self.place = str(path)

    def look(self) -> Collection[str]:
        """See ``Storage.look``."""
        with os.scandir(self._path) as entries:
            return {entry.name for entry in entries if self._names.wants(entry.name) and entry.is_file()}

    def note(self, name: str) -> NotedFile | None:
        """See ``Storage.note``."""
        path = self._path / name
        try:
            found = path.stat()
            return NotedFile(path.name, found.st_size, found.st_mtime_ns, ends_digest(path))
        except FileNotFoundError:
            return None  # gone again before it was listed

    def difference(self, file: NotedFile) -> str:
        """See ``Storage.difference``."""
        return difference(self._path / file.name, file.size_bytes, file.changed_ns, file.digest)

    def found(self, file: NotedFile) -> FoundFile:
        """See ``Storage.found``."""
        path = self._path / file.name
        try:
            other = self.difference(file)
        except FileNotFoundError as error:
            raise SourceError(f"{path} was removed before all of it was processed: restore it") from error
        if other:
            raise SourceError(
                f"{path} {other}: restore it; a file must be complete when it appears (write it elsewhere and rename "
                "it)"
            )
        return FoundFile(path, file.name)
