"""A journal whose copy is in an object store: on another machine it is made again, and its old owner adds nothing."""

from __future__ import annotations

import os
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, cast

import pytest

from gateway.connectors.position import Position
from gateway.journal.copyobjects import ReplicaPlace
from gateway.journal.replica import Replica
from infra.objectstore.base import ObjectStore, StoreUnavailableError
from infra.objectstore.folder import FolderStore
from infra.objectstore.s3 import S3Store
from infra.statefiles import StateError
from tests.connectors.http_data import site
from tests.connectors.journal_data import everything, opened
from tests.connectors.s3_server import S3Server
from tests.support.waiting import until

TIMES = 30


class Shared:
    """The object store of a fleet, and who owns the fleet."""

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.lost = ""

    def replica(self, place: str, epoch: int) -> Replica:
        return Replica(ReplicaPlace(self.store, "journals/f/q/id", place, epoch, lambda: self.lost))

    def count(self, kind: str = "records") -> int:
        return len(list(self.store.list(f"journals/f/q/id/{kind}/")))


@pytest.fixture
def shared(tmp_path: Path) -> Shared:
    return Shared(FolderStore(tmp_path / "store"))


@pytest.fixture(params=["folder", "s3"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> Shared:
    if request.param == "folder":
        return Shared(FolderStore(tmp_path / "store"))
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("bucket")
    return Shared(S3Store(bucket, prefix="some/where", endpoint=server.endpoint))


class Losing:
    """A store that does a write, or does not, and then does not answer; ``fails`` says when."""

    def __init__(self, store: ObjectStore, *, done: bool) -> None:
        self._store, self._done = store, done
        self.fails = False

    def put_if_absent(self, name: str, data: bytes) -> str:
        etag = self._store.put_if_absent(name, data) if self._done or not self.fails else ""
        if self.fails:
            raise StoreUnavailableError("no answer")
        return etag

    def __getattr__(self, name: str) -> Any:
        if self.fails:
            raise StoreUnavailableError("no answer")
        return getattr(self._store, name)


async def test_another_machine_continues_and_the_old_owner_adds_nothing(anywhere: Shared, tmp_path: Path) -> None:
    async with opened(tmp_path / "a", remember_keys_s=9e9, replica=anywhere.replica("a", 1)) as old:
        for n in range(10):
            await old.append([b"%d" % n, b"x"], key=f"k{n}", topics=["t", "u"])
        half = await old.read(Position(), 7, 1 << 20)
        assert half is not None
        await old.append([b"last"], notes={"session": b"1"})
        async with opened(tmp_path / "b", remember_keys_s=9e9, replica=anywhere.replica("b", 2)) as new:
            with pytest.raises(OSError, match="another gateway of the fleet has opened this journal"):
                await old.append([b"refused"])
            assert old.next_record == new.next_record == 21
            assert await everything(new) == [*(b"%d" % n if i else b"x" for n in range(10) for i in (1, 0)), b"last"]
            # A position of the other machine, with its part and offset.
            rest = await new.read(half.end, 100, 1 << 20)
            assert rest is not None
            assert (rest.start.record, rest.records[0], rest.topics[0]) == (7, b"x", "u")
            assert {new.seen(f"k{n}") is not None for n in range(10)} == {True}
            assert new.notes == {"session": b"1"}
            await new.append([b"on"])
    # The first one comes back, with a folder that lacks the end.
    async with opened(tmp_path / "a", remember_keys_s=9e9, replica=anywhere.replica("a", 3)) as again:
        assert (await everything(again))[-2:] == [b"last", b"on"]
        assert again.seen("k0") is not None
    with pytest.raises(StateError, match="another gateway owns the fleet"):
        async with opened(tmp_path / "b", replica=anywhere.replica("b", 2)):
            pass


@pytest.mark.parametrize("done", [False, True])
async def test_what_was_refused_in_an_outage_is_not_there_afterwards(
    shared: Shared, tmp_path: Path, done: bool
) -> None:
    losing = Losing(shared.store, done=done)
    place = ReplicaPlace(cast("ObjectStore", losing), "journals/f/q/id", "a", 1, lambda: "")
    async with opened(tmp_path / "a", remember_keys_s=9e9, probe_s=0.01, replica=Replica(place)) as journal:
        await journal.append([b"one"])
        for keyed in ("k1", "k2"):
            losing.fails = True
            for _ in range(2):
                with pytest.raises(OSError, match="object store cannot be reached"):
                    await journal.append([b"refused"], key=keyed)
            assert "object store" in journal.trouble
            losing.fails = False
            await until(lambda: not journal.trouble)
        await journal.append([b"two"], key="k2")
    async with opened(tmp_path / "b", remember_keys_s=9e9, replica=shared.replica("b", 2)) as other:
        assert await everything(other) == [b"one", b"two"]
        assert other.seen("k1") is None
        assert other.seen("k2") is not None


async def test_a_full_disk_after_the_upload_leaves_nothing_behind(
    shared: Shared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path / "a", remember_keys_s=9e9, replica=shared.replica("a", 1)) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
            with pytest.raises(OSError, match="No space"):
                await journal.append([b"refused"], key="k")
        await journal.append([b"one"])
        assert await everything(journal) == [b"one"]
    async with opened(tmp_path / "b", remember_keys_s=9e9, replica=shared.replica("b", 2)) as other:
        assert await everything(other) == [b"one"]
        assert other.seen("k") is None


async def test_nothing_is_acknowledged_once_the_fleet_is_lost(shared: Shared, tmp_path: Path) -> None:
    async with opened(tmp_path / "a", replica=shared.replica("a", 1)) as journal:
        shared.lost = "the lease was lost"
        with pytest.raises(OSError, match="the lease was lost"):
            await journal.append([b"refused"])


async def test_what_is_committed_leaves_the_store_and_its_keys_stay(shared: Shared, tmp_path: Path) -> None:
    async with (
        opened(tmp_path / "sleeper", replica=shared.replica("sleeper", 1)) as sleeper,
        opened(tmp_path / "a", remember_keys_s=9e9, replica=shared.replica("a", 2)) as journal,
    ):
        for n in range(300):
            await journal.append([b"%d" % n], key=f"k{n}")
            await journal.release(Position(journal.next_record))
        await until(lambda: shared.count() < 140)
        with pytest.raises(OSError, match="another gateway of the fleet has opened this journal"):
            await sleeper.append([b"where an object was that is gone"])
    async with opened(tmp_path / "b", remember_keys_s=9e9, replica=shared.replica("b", 3)) as other:
        assert other.next_record == 300
        assert other.first_record > 100
        assert {other.seen(f"k{n}") is not None for n in range(300)} == {True}
        assert shared.count("keys") < 5


async def test_a_journal_that_was_not_copied_is_uploaded(shared: Shared, tmp_path: Path) -> None:
    for epoch in (1, 3):
        async with opened(tmp_path / "a", remember_keys_s=9e9) as journal:
            await journal.append([b"local %d" % epoch], key=f"k{epoch}")
        async with opened(tmp_path / "a", remember_keys_s=9e9, replica=shared.replica("a", epoch)) as journal:
            assert (await everything(journal))[-1] == b"local %d" % epoch
    async with opened(tmp_path / "b", remember_keys_s=9e9, replica=shared.replica("b", 4)) as other:
        assert await everything(other) == [b"local 1", b"local 3"]
        assert None not in (other.seen("k1"), other.seen("k3"))
    async with opened(tmp_path / "a") as journal:
        await journal.append([b"without the copy"])
    with pytest.raises(StateError, match="holds events that are not in the object store"):
        async with opened(tmp_path / "a", replica=shared.replica("a", 5)):
            pass


async def test_the_price_of_an_answer(anywhere: Shared, tmp_path: Path) -> None:
    """Requests one after another, in turn with and without the copy; the figures are printed."""
    waits_s: dict[bool, list[float]] = {False: [], True: []}
    async with site(tmp_path / "off") as without, site(tmp_path / "on", replica=anywhere.replica("a", 1)) as with_copy:
        for n in range(TIMES):
            for copied, at in ((False, without), (True, with_copy)):
                begun_s = perf_counter()
                status, _, _ = await at.post(b'{"id": "a", "n": %d}' % n)
                waits_s[copied].append(perf_counter() - begun_s)
                assert status == 200
        assert with_copy.journal.next_record == without.journal.next_record == TIMES
    assert anywhere.count() == TIMES + 1
    for copied, name in ((False, "on disk"), (True, f"on disk and in {type(anywhere.store).__name__}")):
        found = sorted(waits_s[copied])
        print(f"{name}: median {median(found) * 1e3:.1f} ms, most {found[-1] * 1e3:.1f} ms of {TIMES} answers")
