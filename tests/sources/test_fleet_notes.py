"""The list of files in the fleet's object store: only its present owner writes it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.connectors.fleetplace import FleetPlace
from gateway.sources.files.fleetnotes import FleetNotes
from gateway.sources.files.notes import NotedFile, Notes, NotesFile
from infra.objectstore.base import StoreUnavailableError
from infra.objectstore.folder import FolderStore
from infra.rows.base import SourceError, SourceUnavailableError
from infra.statefiles import StateError

FOLDER = "files/f/q/me"


def notes(*names: str) -> Notes:
    return Notes("s3://in/", taken=tuple(NotedFile(name) for name in names))


class Fleet:
    """A store, and a state_dir for each gateway."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = FolderStore(folder / "store")
        self.lost = ""

    def local(self, place: str) -> NotesFile:
        return NotesFile(self.folder / place / "files.json")

    def owner(self, epoch: int, place: str | None = None, store: FolderStore | None = None) -> FleetNotes:
        name = place or f"place-{epoch}"
        return FleetNotes(FleetPlace(store or self.store, FOLDER, name, epoch, lambda: self.lost), self.local(name))


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


class LosingStore(FolderStore):
    """A store whose answers to writes are lost while ``losing``: they may count."""

    losing = False

    def put_if_absent(self, name: str, data: bytes) -> str:
        etag = super().put_if_absent(name, data)
        if self.losing:
            raise StoreUnavailableError("the answer was lost")
        return etag


def test_the_next_owner_has_the_same_numbers_and_the_one_before_can_write_nothing(fleet: Fleet) -> None:
    old = fleet.owner(1)
    assert old.read() is None
    old.write(notes("a"))
    old.write(notes("a", "b"))
    new = fleet.owner(2)
    assert new.read() == notes("a", "b")
    with pytest.raises(SourceError, match="another gateway of the fleet has opened this list"):
        old.write(notes("a", "b", "stale"))
    new.write(notes("a", "b", "c"))
    for stale in (old, fleet.owner(1)):
        with pytest.raises(SourceError, match="another gateway of the fleet"):
            stale.write(notes("stale"))
    assert fleet.owner(3).read() == notes("a", "b", "c")


def test_an_owner_that_slept_while_its_number_was_pruned_can_write_nothing(fleet: Fleet) -> None:
    old = fleet.owner(1)
    old.read()
    new = fleet.owner(2)
    new.read()
    for number in range(40):
        new.write(notes(f"{number}"))
    assert len(list(fleet.store.list(FOLDER))) < 25
    with pytest.raises(SourceError, match="another gateway of the fleet"):
        old.write(notes("stale"))
    new.write(notes("last"))
    assert fleet.owner(3).read() == notes("last")


def test_a_write_whose_answer_was_lost_is_replaced_by_the_next_one(fleet: Fleet) -> None:
    store = LosingStore(fleet.folder / "store")
    owner = fleet.owner(1, store=store)
    owner.read()
    store.losing = True
    with pytest.raises(SourceUnavailableError, match="the answer was lost"):
        owner.write(notes("a"))
    store.losing = False
    owner.write(notes("a", "b"))
    assert fleet.owner(2).read() == notes("a", "b")


def test_a_gateway_that_lost_the_lease_writes_nothing(fleet: Fleet) -> None:
    owner = fleet.owner(1)
    owner.read()
    owner.write(notes("a"))
    fleet.lost = "it does not own the fleet"
    with pytest.raises(SourceUnavailableError, match="does not own"):
        owner.write(notes("a", "b"))
    fleet.lost = ""
    assert fleet.owner(2).read() == notes("a")


def test_opening_again_under_one_epoch_claims_nothing_anew(fleet: Fleet) -> None:
    fleet.owner(1).write(notes("a"))
    before = list(fleet.store.list(FOLDER))
    assert fleet.owner(1).read() == notes("a")
    assert list(fleet.store.list(FOLDER)) == before
    with pytest.raises(SourceError, match="another gateway"):
        fleet.owner(1, "elsewhere").read()


def test_a_list_on_this_machine_moves_to_the_store_and_is_not_used_here_any_more(fleet: Fleet) -> None:
    local = fleet.local("place-1")
    local.write(notes("a"))
    assert fleet.owner(1).read() == notes("a")
    with pytest.raises(StateError, match="start the gateway with its fleet"):
        local.read()
    fleet.owner(2).write(notes("a", "b"))
    assert fleet.owner(3, "place-1").read() == notes("a", "b")
    fleet.owner(4).write(None)
    assert fleet.owner(5, "place-1").read() is None


def test_too_long_a_list_is_refused_before_it_is_written(fleet: Fleet) -> None:
    owner = fleet.owner(1)
    owner.read()
    with pytest.raises(SourceError, match="remove those that are processed"):
        owner.write(notes(*(f"{number:0>1000}" for number in range(15_000))))
    assert fleet.owner(2).read() is None


def test_a_damaged_list_is_named(fleet: Fleet) -> None:
    fleet.store.put(f"{FOLDER}/000000000001", b"{")
    with pytest.raises(StateError, match=r"version 1 of files/f/q/me in .* cannot be read"):
        fleet.owner(1).read()
