"""A folder of files as a source: which files are read, in which order; the list is on disk before they are read."""

from __future__ import annotations

import logging
import os
from collections.abc import Collection
from pathlib import Path

import msgspec

from gateway.config.words.fields import ROW_SUFFIXES
from gateway.connectors.position import Position
from gateway.sources.base import SourceError
from gateway.sources.marks import ends_digest
from infra.clock import Clock
from infra.statefiles import StateError, write_atomically

_LOG = logging.getLogger(__name__)
NOTES_NAME = "files.json"
LOOK_EVERY_S = 0.25
# A slow listing (a folder of very many files) is done less often: it should take at most a fifth of the time.
_REST_PER_LOOK = 4.0
FILES_MAX = 1_000_000


class NotedFile(msgspec.Struct, frozen=True, array_like=True):
    """A file when it was listed; values that an older version did not record are 0 or empty."""

    name: str
    size_bytes: int = -1
    changed_ns: int = 0
    digest: str = ""

    def is_other(self, path: Path) -> str:
        """Return how the file at ``path`` differs from the listed one; empty if it does not.

        Raises:
            OSError: it does not exist, or cannot be read.
        """
        found = path.stat()
        if self.size_bytes not in (-1, found.st_size):
            return f"had {self.size_bytes} bytes when it was listed and has {found.st_size} now"
        if self.digest and found.st_mtime_ns != self.changed_ns and ends_digest(path) != self.digest:
            return "has other content than when it was taken"
        return ""


class Notes(msgspec.Struct, frozen=True):
    """The list on disk.

    Attributes:
        folder: the folder.
        first: number of the first of ``taken``.
        taken: listed files by their number.
        done: earlier ones that are still in the folder; only names if an older version wrote them.
    """

    folder: str
    first: int = 0
    taken: tuple[NotedFile, ...] = ()
    done: tuple[NotedFile | str, ...] = ()

    @property
    def done_files(self) -> list[NotedFile]:
        """Return the files that are done."""
        return [NotedFile(file) if isinstance(file, str) else file for file in self.done]


def read_notes(path: Path) -> Notes | None:
    """Return the list at ``path``, if there is one.

    Raises:
        StateError: it is damaged.
    """
    if not path.exists():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Notes)
    except msgspec.DecodeError as error:
        raise StateError(f"{path} cannot be read ({error}): restore it from a backup") from error


def write_notes(path: Path, notes: Notes) -> None:
    """Replace the list at ``path``.

    Raises:
        OSError: the disk fails.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, msgspec.json.encode(notes))


class FolderFiles:
    """The files of a folder, by the number that they got when they were listed.

    New files are listed in the order of discovery, sorted by name within one look. A file must be complete when it
    appears (written elsewhere, then renamed); a name that begins with "." or ends in ".tmp" is ignored until it is
    renamed. The list is on disk before a file's first record is read. A file that is done is dropped from the list once
    it was removed from the folder, so that the list does not outgrow the folder. A name that appears again later is a
    new file.

    Args:
        folder: the folder.
        notes: the path of the list.
        clock: time.
        follow: whether new files are added; otherwise only the files of the first look count.
        loops: how often the files are replayed, if not followed.
        files_max: the limit of files.
    """

    def __init__(
        self, folder: Path, notes: Path, clock: Clock, *, follow: bool, loops: int = 1, files_max: int = FILES_MAX
    ) -> None:
        self._folder = folder
        self._path = notes
        self._clock = clock
        self._follow = follow
        self._files_max = files_max
        self._loops = 1 if follow else loops
        self._next_look_s = -float("inf")
        self._done_before = 0
        self._ignored_said = False
        self._set(self._load() or Notes(str(folder)))

    def _load(self) -> Notes | None:
        notes = read_notes(self._path)
        if notes is not None and notes.folder != str(self._folder):
            raise SourceError(
                f"the state is of the files in {notes.folder}, not of those in {self._folder}: "
                "set the old path, or give the query another name"
            )
        return notes

    def _set(self, notes: Notes) -> None:
        self._notes = notes
        self._known = {file.name for file in (*notes.taken, *notes.done_files)}

    def at(self, number: int) -> Path | None:
        """See ``Files.at``."""
        if number >= self._notes.first + len(self._notes.taken) and (self._follow or not self._path.exists()):
            self._look()
        looped = not self._follow and number < self.count_of_all()
        index = (number % self.per_loop if looped else number) - self._notes.first
        if index < 0:
            raise SourceError(
                f"file {number} of {self._folder} is no longer in the list of files: restore {self._path}"
            )
        return self._unchanged(self._notes.taken[index]) if index < len(self._notes.taken) else None

    def _unchanged(self, file: NotedFile) -> Path:
        path = self._folder / file.name
        try:
            other = file.is_other(path)
        except FileNotFoundError as error:
            raise SourceError(f"{path} was removed before all of it was processed: restore it") from error
        if other:
            raise SourceError(
                f"{path} {other}: restore it; a file must be complete when it appears (write it elsewhere and rename "
                "it)"
            )
        return path

    def loop_of(self, number: int) -> int:
        """See ``Files.loop_of``."""
        return 0 if self._follow else number // self.per_loop

    def count_of_all(self) -> int:
        """Return the number of files, in all passes."""
        return len(self._notes.taken) * self._loops

    @property
    def count(self) -> int | None:
        """See ``Files.count``."""
        return None if self._follow else self.count_of_all()

    @property
    def per_loop(self) -> int:
        """See ``Files.per_loop``."""
        return max(1, len(self._notes.taken))

    def acknowledge(self, position: Position) -> None:
        """Note that the files before ``position`` are done."""
        self._done_before = max(self._done_before, position.part)

    def _look(self) -> None:
        """Add new files, and write them to disk before anything reads them."""
        begun_s = self._clock.now()
        if begun_s < self._next_look_s:
            return
        with os.scandir(self._folder) as entries:
            present = {entry.name: entry for entry in entries if self._is_wanted(entry)}
        new = [
            file for name in sorted(present.keys() - self._known) if (file := _seen(Path(present[name]))) is not None
        ]
        if new or not self._path.exists():
            notes = self._pruned(present.keys())
            if len(notes.taken) + len(notes.done) + len(new) > self._files_max:
                raise SourceError(
                    f"{self._folder} holds more than {self._files_max} files: move away those that are processed"
                )
            notes = msgspec.structs.replace(notes, taken=(*notes.taken, *new))
            write_notes(self._path, notes)
            self._set(notes)
        now_s = self._clock.now()
        self._next_look_s = now_s + max(LOOK_EVERY_S, _REST_PER_LOOK * (now_s - begun_s))

    def _pruned(self, present: Collection[str]) -> Notes:
        """Return the list without done files that are not in the folder any more."""
        done = max(0, self._done_before - self._notes.first) if self._follow else 0
        return pruned(self._notes, done, present)

    def _is_wanted(self, entry: os.DirEntry[str]) -> bool:
        if not is_candidate(entry.name):
            return False
        if entry.name.endswith(ROW_SUFFIXES):
            return entry.is_file()
        if not self._ignored_said:
            self._ignored_said = True
            _LOG.warning("%s: ignoring %s and other files of unsupported types", self._folder, entry.name)
        return False


def pruned(notes: Notes, done: int, present: Collection[str]) -> Notes:
    """Return ``notes`` with the first ``done`` files marked as done; of all done ones only those ``present`` stay."""
    files = [*notes.done_files, *notes.taken[:done]]
    return msgspec.structs.replace(
        notes,
        first=notes.first + done,
        taken=notes.taken[done:],
        done=tuple(file for file in files if file.name in present),
    )


def _seen(path: Path) -> NotedFile | None:
    try:
        found = path.stat()
        return NotedFile(path.name, found.st_size, found.st_mtime_ns, ends_digest(path))
    except FileNotFoundError:
        return None  # gone again before it was listed


def is_candidate(name: str) -> bool:
    """Return whether a file of this name counts; the others are still being written."""
    return not name.startswith(".") and not name.endswith(".tmp")
