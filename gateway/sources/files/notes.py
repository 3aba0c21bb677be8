"""The list of the files that a source has found, each with its number; and where it is kept on this machine."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Protocol

import msgspec

from infra.statefiles import StateError, write_atomically

NOTES_NAME = "files.json"


class NotedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file when it was listed; values that an older version did not record are 0 or empty.

    ``digest`` is the hash of its ends, or an object's ETag.
    """

    name: str
    size_bytes: int = -1
    changed_ns: int = 0
    digest: str = ""


class Notes(msgspec.Struct, frozen=True, omit_defaults=True):
    """The list.

    Attributes:
        folder: where the files are.
        first: number of the first of ``taken``.
        taken: listed files by their number.
        done: earlier ones that are still in the folder; only names if an older version wrote them.
        kept_in: where the list is kept instead, if not here.
    """

    folder: str
    first: int = 0
    taken: tuple[NotedFile, ...] = ()
    done: tuple[NotedFile | str, ...] = ()
    kept_in: str = ""

    @property
    def done_files(self) -> list[NotedFile]:
        """Return the files that are done."""
        return [NotedFile(file) if isinstance(file, str) else file for file in self.done]


class NotesStore(Protocol):
    """Keeps the list of one source. The methods block; one call at a time."""

    @property
    def where(self) -> str:
        """Where the list is, for messages."""
        ...

    def read(self) -> Notes | None:
        """Return the list, if there is one.

        Raises:
            StateError: it is damaged, or is kept elsewhere.
            SourceError: this gateway may not use it.
            SourceUnavailableError: or OSError: not now.
        """
        ...

    def write(self, notes: Notes | None) -> None:
        """Replace the list, or remove it. It counts once this returns.

        Raises:
            SourceError: this gateway may not write it.
            SourceUnavailableError: or OSError: not now; the list may be either one.
        """
        ...


class NotesFile:
    """A ``NotesStore`` on this machine.

    Args:
        path: of the list.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def where(self) -> str:
        """See ``NotesStore.where``."""
        return str(self._path)

    def read(self) -> Notes | None:
        """See ``NotesStore.read``."""
        notes = self._decoded()
        if notes is not None and notes.kept_in:
            raise StateError(
                f"the list of the files that were read is kept in {notes.kept_in}: start the gateway with its fleet, "
                f"or remove {self._path}, and every file is read again"
            )
        return notes

    def write(self, notes: Notes | None) -> None:
        """See ``NotesStore.write``."""
        if notes is None:
            self._path.unlink(missing_ok=True)
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self._path, msgspec.json.encode(notes))

    def move_to(self, where: str) -> None:
        """Note that the list is kept at ``where`` from now on."""
        self.write(Notes("", kept_in=where))

    def not_moved(self) -> Notes | None:
        """Return the list, unless there is none or it is kept elsewhere."""
        notes = self._decoded()
        return None if notes is None or notes.kept_in else notes

    def _decoded(self) -> Notes | None:
        if not self._path.exists():
            return None
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Notes)
        except msgspec.DecodeError as error:
            raise StateError(f"{self._path} cannot be read ({error}): restore it from a backup") from error


def pruned(notes: Notes, done: int, present: Collection[str]) -> Notes:
    """Return ``notes`` with the first ``done`` files marked as done; of all done ones only those ``present`` stay."""
    files = [*notes.done_files, *notes.taken[:done]]
    return msgspec.structs.replace(
        notes,
        first=notes.first + done,
        taken=notes.taken[done:],
        done=tuple(file for file in files if file.name in present),
    )
