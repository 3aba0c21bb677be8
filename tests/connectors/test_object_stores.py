"""All object stores keep the same promises; S3's is tested with a real server, and with one that injects faults."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.objectstore.base import ConflictError, ObjectStore, StoreRefusedError, StoreUnavailableError
from infra.objectstore.folder import FolderStore
from infra.objectstore.memory import MemoryStore
from infra.objectstore.s3 import S3Store
from infra.objectstore.versions import OvertakenError, Version, Versions
from tests.connectors.s3_server import Fault, S3Server, faulty

MakeStore = Callable[[], ObjectStore]


@pytest.fixture(params=["s3", "folder", "memory"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> MakeStore:
    """Creates stores for the same place, as two gateways would."""
    if request.param == "folder":
        return lambda: FolderStore(tmp_path / "store")
    if request.param == "memory":
        one = MemoryStore()
        return lambda: one
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("bucket")
    return lambda: S3Store(bucket, prefix="some/where", endpoint=server.endpoint)


class TestContract:
    def test_what_is_put_is_there(self, make_store: MakeStore) -> None:
        store = make_store()
        assert store.get("a/b.json", bytes_max=10) is None
        store.delete("a/b.json")
        etag = store.put("a/b.json", b"one")
        found = make_store().get("a/b.json", bytes_max=3)
        assert found is not None
        assert (found.data, found.etag) == (b"one", etag)
        assert store.put("a/b.json", b"") != etag
        found = store.get("a/b.json", bytes_max=0)
        assert found is not None
        assert found.data == b""
        store.delete("a/b.json")
        assert store.get("a/b.json", bytes_max=10) is None

    def test_if_absent(self, make_store: MakeStore) -> None:
        store = make_store()
        store.put_if_absent("x", b"first")
        with pytest.raises(ConflictError):
            store.put_if_absent("x", b"second")
        found = store.get("x", bytes_max=100)
        assert found is not None
        assert found.data == b"first"
        store.delete("x")
        store.put_if_absent("x", b"third")

    def test_if_match(self, make_store: MakeStore) -> None:
        store = make_store()
        with pytest.raises(ConflictError):
            store.put_if_match("x", b"none is there", "0" * 32)
        old = store.put("x", b"1")
        new = store.put_if_match("x", b"2", old)
        with pytest.raises(ConflictError):
            store.put_if_match("x", b"3", old)
        found = store.get("x", bytes_max=100)
        assert found is not None
        assert (found.data, found.etag) == (b"2", new)

    def test_lists_are_sorted_and_complete(self, make_store: MakeStore) -> None:
        store = make_store()
        names = sorted([f"d/{n:04d}" for n in range(30)] + ["d-e", "d/x/y", "dd", "e"])
        for name in reversed(names):
            store.put(name, b"")
        assert list(store.list("")) == names
        assert list(store.list("d/")) == [name for name in names if name.startswith("d/")]
        assert list(store.list("d/00", after="d/0027")) == ["d/0028", "d/0029"]
        assert list(store.list("nothing/")) == []

    def test_an_object_that_is_too_large_is_refused(self, make_store: MakeStore) -> None:
        store = make_store()
        store.put("x", b"12345")
        with pytest.raises(StoreRefusedError, match="larger than 4 bytes"):
            store.get("x", bytes_max=4)

    @pytest.mark.parametrize("name", ["", "/x", "x/", "a//b", "../x", "a/../b", ".hidden", "a b", "x" * 600])
    def test_a_bad_name_is_a_mistake(self, make_store: MakeStore, name: str) -> None:
        with pytest.raises(ValueError, match="is not a valid object name"):
            make_store().put(name, b"")

    def test_of_many_at_once_one_creates_and_one_replaces(self, make_store: MakeStore) -> None:
        stores = [make_store() for _ in range(4)]
        etag = stores[0].put("match", b"0")
        for what in ("absent", "match"):
            won: list[int] = []

            def race(at: int, what: str = what, won: list[int] = won) -> None:
                try:
                    if what == "absent":
                        stores[at].put_if_absent(what, b"%d" % at)
                    else:
                        stores[at].put_if_match(what, b"new %d" % at, etag)
                except ConflictError:
                    return
                won.append(at)

            threads = [threading.Thread(target=race, args=(at,)) for at in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(won) == 1


class TestVersions:
    def test_the_last_one_is_the_record(self, make_store: MakeStore) -> None:
        versions = Versions(make_store(), "record")
        assert versions.latest() is None
        for number in range(1, 30):
            versions.add(number, b"%d" % number)
            versions.prune(number)
        assert versions.latest() == Version(29, b"29")
        assert len(list(make_store().list("record/"))) == 16

    def test_written_again_it_is_the_same_and_others_lose(self, make_store: MakeStore) -> None:
        mine, other = Versions(make_store(), "record"), Versions(make_store(), "record")
        mine.add(1, b"mine")
        mine.add(1, b"mine")
        with pytest.raises(OvertakenError) as caught:
            other.add(1, b"other")
        assert caught.value.latest == Version(1, b"mine")
        other.add(2, b"other")
        with pytest.raises(OvertakenError) as caught:
            mine.add(1, b"mine")
        assert caught.value.latest == Version(2, b"other")

    def test_a_writer_that_slept_learns_it_although_its_number_is_free_again(self, make_store: MakeStore) -> None:
        asleep, other = Versions(make_store(), "record"), Versions(make_store(), "record")
        asleep.add(1, b"asleep")
        for number in range(2, 41):
            other.add(number, b"other %d" % number)
            other.prune(number)
        assert asleep.at(2) is None
        with pytest.raises(OvertakenError) as caught:
            asleep.add(2, b"asleep")
        assert caught.value.latest == Version(40, b"other 40")
        assert other.latest() == Version(40, b"other 40")
        other.prune_all(40)
        assert len(list(make_store().list("record/"))) == 16


class TestFolder:
    def test_what_a_killed_writer_left_goes(self, tmp_path: Path) -> None:
        FolderStore(tmp_path / "s").put("a/x", b"1")
        (tmp_path / "s" / "a" / ".tmp-123").write_bytes(b"half")
        store = FolderStore(tmp_path / "s")
        assert list(store.list("")) == ["a/x"]
        assert not (tmp_path / "s" / "a" / ".tmp-123").exists()

    def test_a_file_in_its_place_is_said(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(StoreRefusedError, match="that it is a folder"):
            FolderStore(tmp_path / "file")


class TestTrouble:
    def test_no_bucket_is_said(self, s3_server: S3Server, bucket: str) -> None:
        store = S3Store(f"{bucket}-not", endpoint=s3_server.endpoint)
        for ask in (lambda: store.put("x", b""), lambda: list(store.list("")), lambda: store.get("x", bytes_max=1)):
            with pytest.raises(StoreRefusedError, match="the bucket does not exist: create it"):
                ask()

    def test_no_credentials_are_said(
        self, s3_server: S3Server, bucket: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        for name in [name for name in os.environ if name.startswith("AWS_")]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
        with pytest.raises(StoreRefusedError, match="no credentials were found"):
            S3Store(bucket, endpoint=s3_server.endpoint, region="us-east-1").put("x", b"")

    def test_nobody_listens(self, bucket: str) -> None:
        with pytest.raises(StoreUnavailableError):
            S3Store(bucket, endpoint="http://127.0.0.1:9").put("x", b"")

    @pytest.mark.parametrize("kind", ["500", "503", "slow down", "refused", "answer lost"])
    def test_one_fault_is_tried_again_many_are_not(self, s3_server: S3Server, bucket: str, kind: Fault) -> None:
        with faulty(s3_server, lambda request: kind if request.count == 1 else "") as proxy:
            S3Store(bucket, endpoint=proxy.endpoint).put("x", b"1")
            assert proxy.faults == 1
            proxy.fault = lambda _: kind
            with pytest.raises(StoreUnavailableError):
                S3Store(bucket, endpoint=proxy.endpoint).get("x", bytes_max=10)
            assert proxy.faults == 4

    def test_a_late_answer_is_an_unknown_outcome(self, s3_server: S3Server, bucket: str) -> None:
        with faulty(s3_server, lambda _: "late", late_s=3.0) as proxy:
            store = S3Store(bucket, endpoint=proxy.endpoint, read_s=0.3)
            with pytest.raises((StoreUnavailableError, ConflictError)):
                store.put_if_absent("x", b"1")
        assert S3Store(bucket, endpoint=s3_server.endpoint).get("x", bytes_max=10) is not None

    def test_a_conditional_write_whose_answer_was_lost_is_known_for_ones_own(
        self, s3_server: S3Server, bucket: str
    ) -> None:
        """The client retries by itself, and finds the result of its own first try."""
        with faulty(s3_server, lambda _: "") as proxy:
            proxy.fault = lambda request: "answer lost" if request.method == "PUT" and proxy.faults == 0 else ""
            with pytest.raises(ConflictError):
                S3Store(bucket, endpoint=proxy.endpoint).put_if_absent("plain", b"1")
            proxy.faults = 0
            Versions(S3Store(bucket, endpoint=proxy.endpoint), "record").add(1, b"mine")
            assert proxy.faults == 1
