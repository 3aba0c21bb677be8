"""A bucket in which objects appear. One object at a time is copied to this machine while it is read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gateway.sources.files.listed import WantedNames
from gateway.sources.files.notes import NotedFile
from gateway.sources.files.reading.passes import FoundFile
from infra.objectstore.base import ForeignObjects, ListedObject, ReplacedError, StoreRefusedError, StoreUnavailableError
from infra.rows.base import SourceError, SourceUnavailableError

LOOK_EVERY_S: Final = 1.0
"""Each look costs one request for every thousand objects."""
_NAME_LENGTH_MAX: Final = 200


class Bucket:
    """A ``Storage`` of objects, those in subfolders included; an object is complete when it appears.

    Args:
        place: names it.
        make_objects: returns the objects; called when they are needed, and again after an error.
        scratch: the folder for the copy of the object that is read; whatever else is in it is removed.
        object_bytes_max: a larger object is refused.
        look_every_s: see ``Storage``.
    """

    def __init__(
        self,
        place: str,
        make_objects: Callable[[], ForeignObjects],
        scratch: Path,
        *,
        object_bytes_max: int,
        look_every_s: float = LOOK_EVERY_S,
    ) -> None:
        self.place = place
        self.look_every_s = look_every_s
        self._make_objects = make_objects
        self._scratch = scratch
        self._object_bytes_max = object_bytes_max
        self._objects: ForeignObjects | None = None
        self._names = WantedNames(place)
        self._present: dict[str, ListedObject] = {}
        self._fetching: NotedFile | None = None

    def look(self) -> Collection[str]:
        """See ``Storage.look``."""
        with self._in_source_words():
            found = (entry for entry in self._store().listed() if self._wants(entry.name))
            self._present = {entry.name: entry for entry in found}
        return self._present.keys()

    def note(self, name: str) -> NotedFile | None:
        """See ``Storage.note``."""
        found = self._present[name]
        return NotedFile(name, found.size_bytes, digest=found.etag)

    def difference(self, file: NotedFile) -> str:
        """See ``Storage.difference``."""
        return "" if self._present[file.name].etag == file.digest else "was replaced after it was listed"

    def found(self, file: NotedFile) -> FoundFile:
        """See ``Storage.found``: a copy of it, which is removed when it is released."""
        if file.size_bytes > self._object_bytes_max:
            raise SourceError(
                f"{self.place}: {file.name} has {file.size_bytes} bytes, and object_limit is {self._object_bytes_max}: "
                "raise it, if the disk has room for the object"
            )
        # The copy's name is in messages: it ends as the object's does.
        path = self._scratch / quote(file.name, safe="")[-_NAME_LENGTH_MAX:]
        self._fetch(file, path.with_name("incomplete"))
        path.with_name("incomplete").replace(path)
        self._fetching = None
        return FoundFile(path, file.name, partial(path.unlink, missing_ok=True))

    def _fetch(self, file: NotedFile, copy: Path) -> None:
        """Copy an object; after an error the next call continues where this one ended."""
        if self._fetching != file:
            if self._scratch.exists():
                shutil.rmtree(self._scratch)
            self._scratch.mkdir(parents=True)
            self._fetching = file
        with copy.open("ab") as out:
            start = out.tell()
            if start < file.size_bytes or not file.size_bytes:
                wanted = ListedObject(file.name, file.size_bytes, file.digest)
                try:
                    with self._in_source_words():
                        for piece in self._store().pieces(wanted, start=start):
                            out.write(piece)
                except ReplacedError as error:
                    raise SourceError(
                        f"{self.place}: {file.name} {error}: restore it; an object must stay as it is until all of it "
                        "is processed"
                    ) from error
            if out.tell() != file.size_bytes:
                if out.tell() > file.size_bytes:
                    self._fetching = None  # begin anew
                raise SourceUnavailableError(
                    f"{self.place}: {file.name} came with {out.tell()} of {file.size_bytes} bytes"
                )

    def _wants(self, name: str) -> bool:
        return not name.endswith("/") and self._names.wants(name.rpartition("/")[2])

    def _store(self) -> ForeignObjects:
        if self._objects is None:
            self._objects = self._make_objects()
        return self._objects

    @contextmanager
    def _in_source_words(self) -> Iterator[None]:
        try:
            yield
        except StoreUnavailableError as error:
            raise SourceUnavailableError(str(error)) from error
        except StoreRefusedError as error:
            raise SourceError(str(error)) from error
