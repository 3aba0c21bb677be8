from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from gateway.connectors.position import Position
from gateway.sources.files import notes as notes_module
from gateway.sources.files.folder import LOOK_EVERY_S, Folder
from gateway.sources.files.listed import FILES_MAX, ListedFiles
from gateway.sources.files.notes import NotesFile
from gateway.sources.files.reading.passes import PassesSource
from infra.files.choosing import open_by_name
from infra.rows.base import SourceError
from infra.statefiles import StateError
from tests.support.source_data import HUGE, SCHEMA, assert_consecutive, assert_seekable, line, read_all, rows, write


class HandClock:
    """Time that the test moves."""

    def __init__(self) -> None:
        self.at_s = 100.0

    def now(self) -> float:
        return self.at_s

    def wall(self) -> float:
        return self.at_s

    async def sleep_until(self, at_s: float) -> None:
        self.at_s = max(self.at_s, at_s)


class Place:
    """A folder, the state of its query, and a clock."""

    def __init__(self, path: Path) -> None:
        self.folder = path / "in"
        self.folder.mkdir()
        self.notes = path / "state" / "files.json"
        self.clock = HandClock()
        self._sources: list[PassesSource] = []

    def put(self, name: str, first: int, count: int = 3) -> Path:
        content = b"".join(line(n) + b"\n" for n in range(first, first + count))
        return write(self.folder / name, content)

    def files(self, *, follow: bool = True, loops: int = 1, files_max: int = FILES_MAX) -> ListedFiles:
        kept = NotesFile(self.notes)
        return ListedFiles(Folder(self.folder), kept, self.clock, follow=follow, loops=loops, files_max=files_max)

    def source(self, files: ListedFiles, schema: pa.Schema = SCHEMA) -> PassesSource:
        source = PassesSource(files, partial(open_by_name, strict=False), id_field="id", folder=True)
        source.open(schema)
        self._sources.append(source)
        return source

    def close(self) -> None:
        for source in self._sources:
            source.close()

    def numbers(self, source: PassesSource) -> list[int]:
        """Look again, and return the files that are there."""
        self.clock.at_s += 60
        found: list[int] = []
        while (chunk := source.read(1000, HUGE)) is not None:
            found += chunk.batch.column("n").to_pylist()
        return found


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def test_files_come_in_order_of_name_and_new_ones_in_order_of_discovery(place: Place) -> None:
    place.put("b.jsonl", 10)
    place.put("a.jsonl.gz", 0)
    source = place.source(place.files())
    assert place.numbers(source) == [0, 1, 2, 10, 11, 12]
    place.put("aa.jsonl", 30)
    place.put("0.jsonl.zst", 20)
    assert place.numbers(source) == [20, 21, 22, 30, 31, 32]
    assert place.numbers(source) == []
    assert not source.finished


def test_what_is_being_written_is_left_alone(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    place.put(".hidden.jsonl", 0)
    growing = place.put("a.jsonl.tmp", 0)
    place.put("README", 0)
    (place.folder / "deeper.jsonl").mkdir()
    source = place.source(place.files())
    assert place.numbers(source) == []
    growing.rename(place.folder / "a.jsonl")
    assert place.numbers(source) == [0, 1, 2]
    assert caplog.text.count("README and other files of unsupported types") == 1


def test_positions_mean_the_same_after_a_crash_whatever_appeared_meanwhile(place: Place) -> None:
    place.put("m.jsonl", 0)
    place.put("n.jsonl", 10)
    source = place.source(place.files())
    place.clock.at_s += 60
    chunks = [chunk for _ in range(4) if (chunk := source.read(2, HUGE)) is not None]
    place.put("a.jsonl", 20)
    again = place.source(place.files())  # the first one just goes away, as in a crash
    for chunk in [*reversed(chunks), *chunks]:
        again.seek(chunk.start)
        repeated = again.read(chunk.end.record - chunk.start.record, HUGE)
        assert repeated is not None
        assert (repeated.batch, repeated.end) == (chunk.batch, chunk.end)
    again.seek(chunks[1].end)
    assert place.numbers(again) == [10, 11, 12, 20, 21, 22]


def test_the_list_is_on_disk_before_a_record_is_given_out(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("a.jsonl", 0)

    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    source = place.source(place.files())
    with monkeypatch.context() as patch:
        patch.setattr(notes_module, "write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            source.read(1, HUGE)
    assert not place.notes.exists()
    assert place.numbers(source) == [0, 1, 2]
    assert b'"a.jsonl"' in place.notes.read_bytes()


@pytest.mark.parametrize("what", ["removed", "grown"])
def test_a_file_that_is_not_what_it_was_is_named(place: Place, what: str) -> None:
    path = place.put("a.jsonl", 0)
    source = place.source(place.files())
    assert place.numbers(source) == [0, 1, 2]
    if what == "removed":
        path.unlink()
    else:
        place.put("a.jsonl", 0, 4)
    again = place.source(place.files())
    with pytest.raises(SourceError, match=r"in/a\.jsonl .*restore it"):
        again.read(10, HUGE)


def test_a_done_file_may_be_removed_and_is_then_forgotten_but_never_taken_twice(place: Place) -> None:
    first, second = place.put("a.jsonl", 0), place.put("b.jsonl", 10)
    files = place.files()
    source = place.source(files)
    assert place.numbers(source) == [0, 1, 2, 10, 11, 12]
    source.seek(Position(6, 2, 0))
    files.acknowledge(Position(6, 2, 0))
    first.unlink()
    place.put("c.jsonl", 20)
    assert place.numbers(source) == [20, 21, 22]
    noted = place.notes.read_bytes()
    assert (b"a.jsonl" in noted, b"b.jsonl" in noted, b"c.jsonl" in noted) == (False, True, True)

    second.touch()
    again = place.source(place.files())
    again.seek(Position(6, 2, 0))
    assert place.numbers(again) == [20, 21, 22]
    again.seek(Position(0, 0, 0))
    with pytest.raises(SourceError, match="no longer in the list of files"):
        again.read(1, HUGE)


def test_after_its_last_record_a_file_is_not_needed_any_more(place: Place) -> None:
    path = place.put("a.jsonl", 0)
    source = place.source(place.files())
    place.clock.at_s += 60
    chunk = source.read(3, HUGE)
    assert chunk is not None
    assert chunk.end == Position(3, 1, 0)
    path.unlink()
    again = place.source(place.files())
    again.seek(chunk.end)
    assert place.numbers(again) == []


def test_a_folder_is_not_looked_at_all_the_time(place: Place) -> None:
    source = place.source(place.files())
    assert source.read(1, HUGE) is None
    place.put("a.jsonl", 0)
    place.clock.at_s += LOOK_EVERY_S * 0.9
    assert source.read(1, HUGE) is None
    place.clock.at_s += LOOK_EVERY_S * 0.2
    assert source.read(1, HUGE) is not None


def test_without_follow_the_first_look_counts_for_good(place: Place) -> None:
    place.put("b.jsonl", 10)
    place.put("empty.jsonl", 0, 0)
    place.put("a.csv", 0)
    (place.folder / "a.csv").write_text("n,id\n0,x\n1,y\n2,z\n")
    source = place.source(place.files(follow=False, loops=2))
    chunks = read_all(source, 2)
    assert [row["n"] for row in rows(chunks)] == [0, 1, 2, 10, 11, 12] * 2
    assert rows(chunks)[6]["id"] == "x#1"
    assert_consecutive(chunks)
    place.put("0.jsonl", 90)
    assert_seekable(source, chunks)
    again = place.source(place.files(follow=False, loops=2))
    assert rows(read_all(again)) == rows(chunks)


def test_files_without_a_record_end_however_often_they_are_played(place: Place) -> None:
    place.put("a.jsonl", 0, 0)
    source = place.source(place.files(follow=False, loops=10**9))
    assert read_all(source) == []


def test_the_name_of_the_file_is_a_column_if_the_schema_wants_it(place: Place) -> None:
    place.put("a.jsonl", 0, 1)
    place.put("b.jsonl", 5, 1)
    (place.folder / "c.jsonl").write_text("oops\n")
    schema = pa.schema([("_file", pa.string()), ("n", pa.int64()), ("id", pa.string())])
    source = place.source(place.files(follow=False), schema)
    chunks = read_all(source)
    assert [(row["_file"], row["n"]) for row in rows(chunks)] == [("a.jsonl", 0), ("b.jsonl", 5)]
    assert chunks[0].batch.schema == schema
    assert [dead.place for chunk in chunks for dead in chunk.dead] == ["c.jsonl"]


def test_state_of_another_folder_or_damaged_state_is_refused(place: Place, tmp_path: Path) -> None:
    place.put("a.jsonl", 0)
    place.source(place.files()).read(1, HUGE)
    place.folder.rename(tmp_path / "other")
    place.folder = tmp_path / "other"
    with pytest.raises(SourceError, match="set the old path"):
        place.files().at(0)
    place.notes.write_bytes(b"{")
    with pytest.raises(StateError, match=r"files\.json cannot be read"):
        place.files().at(0)


def test_too_many_files_are_refused(place: Place) -> None:
    files = place.files(files_max=2)
    for name in "abc":
        place.put(f"{name}.jsonl", 0)
    with pytest.raises(SourceError, match="move away"):
        place.source(files).read(1, HUGE)
