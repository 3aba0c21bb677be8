"""Files that are found one after the other: which ones are read, in which order; the list is kept before it is used."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection
from typing import Protocol

import msgspec

from gateway.config.words.fields import ROW_SUFFIXES
from gateway.connectors.position import Position
from gateway.sources.files.notes import NotedFile, Notes, NotesStore, pruned
from gateway.sources.files.reading.passes import FoundFile
from infra.clock import Clock
from infra.rows.base import SourceError

_LOG = logging.getLogger(__name__)
# A slow look (very many files) is taken less often: it should take at most a fifth of the time.
_REST_PER_LOOK = 4.0
FILES_MAX = 1_000_000


class Storage(Protocol):
    """Where files appear: a folder, or a bucket. The methods block; one call at a time.

    Attributes:
        place: names it; the same after a restart.
        look_every_s: how often to look for new files.
    """

    place: str
    look_every_s: float

    def look(self) -> Collection[str]:
        """Look again, and return the names of all files that are there.

        Raises:
            SourceError: SourceUnavailableError or OSError: it cannot be read (now).
        """
        ...

    def note(self, name: str) -> NotedFile | None:
        """Return a file as it is, by the last look; None if it is gone."""
        ...

    def difference(self, file: NotedFile) -> str:
        """Return how a file that is there, by the last look, differs from the noted one; empty if it does not."""
        ...

    def found(self, file: NotedFile) -> FoundFile:
        """Return the file for reading.

        Raises:
            SourceError: it is gone or is another one.
            SourceUnavailableError: or OSError: not now.
        """
        ...


class ListedFiles:
    """Files by the number that they got when they were listed.

    New files are listed in the order of discovery, sorted by name within one look. A file must be complete when it
    appears. A name that begins with "." or ends in ".tmp" is ignored until the file is renamed. The list is kept before
    a file's first record is read. A file that is done is dropped from the list once it was removed, so that the list
    does not outgrow the storage. A name that appears again later is a new file.

    Args:
        storage: where the files are.
        kept: where the list is kept; read when the first file is wanted.
        clock: time.
        follow: whether new files are added; otherwise only the files of the first look count.
        loops: how often the files are replayed, if not followed.
        files_max: the limit of files.
    """

    def __init__(
        self,
        storage: Storage,
        kept: NotesStore,
        clock: Clock,
        *,
        follow: bool,
        loops: int = 1,
        files_max: int = FILES_MAX,
    ) -> None:
        self._storage = storage
        self._kept = kept
        self._clock = clock
        self._follow = follow
        self._files_max = files_max
        self._loops = 1 if follow else loops
        self._turn = threading.Lock()
        self._next_look_s = -float("inf")
        self._done_before = 0
        self._loaded = self._is_kept = False
        self._set(Notes(storage.place))

    def _load(self) -> None:
        notes = self._kept.read()
        if notes is not None and notes.folder != self._storage.place:
            raise SourceError(
                f"the state is of the files in {notes.folder}, not of those in {self._storage.place}: "
                "set the old path, or give the query another name"
            )
        if notes is not None:
            self._set(notes)
        self._loaded, self._is_kept = True, notes is not None

    def _set(self, notes: Notes) -> None:
        self._notes = notes
        self._known = {file.name for file in (*notes.taken, *notes.done_files)}

    def at(self, number: int) -> FoundFile | None:
        """See ``Files.at``."""
        with self._turn:
            file = self._noted(number)
        return None if file is None else self._storage.found(file)

    def noted(self, number: int) -> NotedFile | None:
        """See ``Files.noted``."""
        with self._turn:
            return self._noted(number)

    def _noted(self, number: int) -> NotedFile | None:
        if not self._loaded:
            self._load()
        if number >= self._notes.first + len(self._notes.taken) and (self._follow or not self._is_kept):
            self._look()
        looped = not self._follow and number < self.count_of_all()
        index = (number % self.per_loop if looped else number) - self._notes.first
        if index < 0:
            raise SourceError(
                f"file {number} of {self._storage.place} is no longer in the list of files: restore {self._kept.where}"
            )
        return self._notes.taken[index] if index < len(self._notes.taken) else None

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
        """Add new files, and keep the list before anything reads them."""
        begun_s = self._clock.now()
        if begun_s < self._next_look_s:
            return
        present = self._storage.look()
        names = sorted(name for name in present if name not in self._known)
        new = [file for name in names if (file := self._storage.note(name)) is not None]
        if new or not self._is_kept:
            notes = self._pruned(present)
            if len(notes.taken) + len(notes.done) + len(new) > self._files_max:
                raise SourceError(
                    f"{self._storage.place} holds more than {self._files_max} files: move away those that are processed"
                )
            notes = msgspec.structs.replace(notes, taken=(*notes.taken, *new))
            self._kept.write(notes)
            self._set(notes)
            self._is_kept = True
        now_s = self._clock.now()
        self._next_look_s = now_s + max(self._storage.look_every_s, _REST_PER_LOOK * (now_s - begun_s))

    def _pruned(self, present: Collection[str]) -> Notes:
        """Return the list without done files that are gone."""
        done = max(0, self._done_before - self._notes.first) if self._follow else 0
        return pruned(self._notes, done, present)


class WantedNames:
    """Chooses the files that are read by their names, and says once that there are others.

    Args:
        place: for the message.
    """

    def __init__(self, place: str) -> None:
        self._place = place
        self._said = False

    def wants(self, name: str) -> bool:
        """Return whether a file of this name is read."""
        if not is_candidate(name):
            return False
        if name.endswith(ROW_SUFFIXES):
            return True
        if not self._said:
            self._said = True
            _LOG.warning("%s: ignoring %s and other files of unsupported types", self._place, name)
        return False


def is_candidate(name: str) -> bool:
    """Return whether a file of this name counts; the others are still being written."""
    return not name.startswith(".") and not name.endswith(".tmp")
