"""Keeps the list of a source's files in the fleet's object store, so that the next owner has the same numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from gateway.connectors.fleetplace import FleetPlace
from gateway.sources.files.notes import Notes, NotesFile
from infra.objectstore.base import StoreRefusedError, StoreUnavailableError
from infra.objectstore.versions import OvertakenError, Version, Versions
from infra.rows.base import SourceError, SourceUnavailableError
from infra.statefiles import StateError

BYTES_MAX: Final = 15_000_000
_TRIES: Final = 5


class StoredNotes(msgspec.Struct, frozen=True):
    """A version of the list.

    Attributes:
        place: the state_dir of the gateway that wrote it.
        epoch: with which that gateway opened the query.
        number: of this version, so that no two of a gateway are equal.
        notes: the list; None if there is none.
    """

    place: str
    epoch: int
    number: int
    notes: Notes | None


class FleetNotes:
    """A ``NotesStore`` of which only the present owner of the fleet can write the next version.

    An owner's first version only claims the list: from then on the next write of every earlier owner fails.

    Args:
        place: where the versions are.
        local: the list of a gateway that joins the fleet with state of its own; it is moved to the store.
    """

    def __init__(self, place: FleetPlace, local: NotesFile) -> None:
        self._place = place
        self._local = local
        self._versions = Versions(place.store, place.folder)
        self._number: int | None = None

    @property
    def where(self) -> str:
        """See ``NotesStore.where``."""
        return f"{self._place.folder} in {self._place.store}"

    def read(self) -> Notes | None:
        """See ``NotesStore.read``."""
        with self._in_source_words():
            notes = self._claimed()
        self._local.move_to(self.where)
        return notes

    def write(self, notes: Notes | None) -> None:
        """See ``NotesStore.write``."""
        with self._in_source_words():
            if self._number is None:
                self._claimed()
            self._add(notes)
            self._versions.prune(self._number or 0)

    def _claimed(self) -> Notes | None:
        latest = self._versions.latest()
        for _ in range(_TRIES):
            found = None if latest is None else self._checked(latest)
            self._number = 0 if latest is None else latest.number
            if found is not None and self._is_mine(found):
                return found.notes
            notes = self._local.not_moved() if found is None else found.notes
            try:
                self._put(notes)
            except OvertakenError as error:
                latest = error.latest
                continue
            return notes
        raise SourceUnavailableError(f"{self.where} is written by other gateways all the time")

    def _add(self, notes: Notes | None) -> None:
        """Write the next version; one of ours, whose answer was lost, may be there already."""
        for _ in range(_TRIES):
            try:
                self._put(notes)
            except OvertakenError as error:
                if not self._is_mine(self._checked(error.latest)):
                    raise self._overtaken() from None
                self._number = error.latest.number
                continue
            return
        raise SourceUnavailableError(f"{self.where}: the next version cannot be created")

    def _put(self, notes: Notes | None) -> None:
        if why := self._place.why_not_write():
            raise SourceUnavailableError(why)
        assert self._number is not None, "the list is read before it is written"
        number = self._number + 1
        data = msgspec.json.encode(StoredNotes(self._place.place, self._place.epoch, number, notes))
        if len(data) > BYTES_MAX:
            raise SourceError(
                f"the list of files has more than {BYTES_MAX / 1e6:g} MB: remove those that are processed, for example "
                "with a rule for their lifetime"
            )
        self._versions.add(number, data)
        self._number = number

    def _checked(self, version: Version) -> StoredNotes:
        try:
            found = msgspec.json.decode(version.data, type=StoredNotes)
        except msgspec.DecodeError as error:
            raise StateError(f"version {version.number} of {self.where} cannot be read ({error})") from error
        if found.epoch > self._place.epoch or (found.epoch == self._place.epoch and not self._is_mine(found)):
            raise self._overtaken()
        return found

    def _is_mine(self, found: StoredNotes) -> bool:
        return (found.place, found.epoch) == (self._place.place, self._place.epoch)

    def _overtaken(self) -> SourceError:
        return SourceError(
            f"{self.where}: another gateway of the fleet has opened this list, and this one can add nothing to it"
        )

    @contextmanager
    def _in_source_words(self) -> Iterator[None]:
        try:
            yield
        except (StoreUnavailableError, StoreRefusedError) as error:
            # A store that refuses is waited for, too: the source itself is right, and nothing is lost meanwhile.
            raise SourceUnavailableError(f"the list of files in the fleet's object store: {error}") from error
