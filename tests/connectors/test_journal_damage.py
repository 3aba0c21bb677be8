"""After a crash or a disk fault a journal has the exact prefix, or reports the damage; it never loses data silently."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.journal.files import JournalEntry, JournalFiles
from gateway.journal.frames import HEAD_BYTES, SEGMENT_HEAD_BYTES, decode_head, encode_body
from gateway.journal.reading import PositionReader
from infra.statefiles import StateError

# A group is what one fsync makes durable: some appends, each of some records.
Group = list[list[bytes]]
RECORD = st.binary(max_size=40).map(lambda raw: raw.replace(b"\0", b"0"))
GROUPS = st.lists(st.lists(st.lists(RECORD, min_size=1, max_size=4), min_size=1, max_size=3), min_size=1, max_size=6)
SEGMENT_BYTES = 300


def records_of(groups: Sequence[Group]) -> list[bytes]:
    return [record for group in groups for records in group for record in records]


def entries(group: Group) -> list[JournalEntry]:
    return [JournalEntry(encode_body(records), len(records), 1000.0, None) for records in group]


def put_all(folder: Path, groups: Sequence[Group], *, segment_bytes: int = SEGMENT_BYTES) -> None:
    files = JournalFiles(folder, segment_bytes, None)
    files.recover()
    for group in groups:
        files.put(entries(group))
    files.close()


def read_all(folder: Path, *, then: bytes | None = None) -> list[bytes]:
    """Open the journal as after a crash, append ``then`` if it is given, and read everything."""
    files = JournalFiles(folder, SEGMENT_BYTES, None)
    reader = PositionReader(folder)
    try:
        files.recover()
        if then is not None:
            files.put(entries([[then]]))
        if files.next_record == 0:
            return []
        return reader.read(files.segments, Position(), 1 << 30, 1 << 60, files.next_record).records
    finally:
        reader.close()
        files.close()


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for one example; changes to its files simulate no power cut, so fsync is not needed."""
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield Path(name)


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.journal"))


def frame_ends(path: Path) -> list[int]:
    """Offsets at which the frames of an intact segment end."""
    data, at, ends = path.read_bytes(), SEGMENT_HEAD_BYTES, []
    while at < len(data):
        head = decode_head(data, at)
        assert head is not None
        at += head.total_bytes
        ends.append(at)
    return ends


def count_before(path: Path, end: int) -> int:
    """How many records of an intact segment are in frames that end before or at ``end``."""
    data, at, count = path.read_bytes(), SEGMENT_HEAD_BYTES, 0
    while at + HEAD_BYTES <= end:
        head = decode_head(data, at)
        assert head is not None
        if at + head.total_bytes > end:
            break
        at += head.total_bytes
        count += head.count
    return count


@settings(max_examples=15, deadline=None)
@given(GROUPS)
def test_cut_at_any_byte_of_the_last_file_the_exact_prefix_is_left(groups: list[Group]) -> None:
    with scratch() as folder:
        put_all(folder / "whole", groups)
        last = segments(folder / "whole")[-1]
        before = int(last.stem.split("-")[1])
        wanted = records_of(groups)
        for size in range(last.stat().st_size):
            shutil.rmtree(folder / "cut", ignore_errors=True)
            shutil.copytree(folder / "whole", folder / "cut")
            with (folder / "cut" / last.name).open("rb+") as file:
                file.truncate(size)
            kept = before + count_before(last, size)
            assert read_all(folder / "cut", then=b"more") == [*wanted[:kept], b"more"]
            assert read_all(folder / "cut") == [*wanted[:kept], b"more"]


@settings(max_examples=150, deadline=None)
@given(GROUPS, st.data())
def test_a_bit_that_flips_anywhere_is_told(groups: list[Group], data: st.DataObject) -> None:
    with scratch() as folder:
        put_all(folder, groups)
        path = data.draw(st.sampled_from(segments(folder)))
        at = data.draw(st.integers(0, path.stat().st_size - 1))
        content = bytearray(path.read_bytes())
        content[at] ^= 1 << data.draw(st.integers(0, 7))
        path.write_bytes(content)
        with pytest.raises(StateError, match=r"\.journal: at byte \d+: .* Restore the file"):
            read_all(folder)


@settings(max_examples=60, deadline=None)
@given(GROUPS, st.lists(RECORD.map(lambda raw: raw * 40), min_size=1, max_size=3), st.data())
def test_sectors_that_were_not_written_at_the_end_are_a_torn_tail(
    groups: list[Group], last: list[bytes], data: st.DataObject
) -> None:
    """A power cut may keep the length of a file without some of its sectors, which then read as zeros."""
    with scratch() as folder:
        put_all(folder, groups, segment_bytes=1 << 20)
        (path,) = segments(folder)
        before = path.stat().st_size
        put_all(folder, [[[record] for record in last]], segment_bytes=1 << 20)
        content = bytearray(path.read_bytes())
        # The sector in which the last group begins was synced before, as far as the group.
        starts = [before, *range(before - before % 512 + 512, len(content), 512)]
        lost = data.draw(st.lists(st.sampled_from(starts), min_size=1, unique=True))
        for start in lost:
            end = min(start - start % 512 + 512, len(content))
            content[start:end] = bytes(end - start)
        path.write_bytes(content)
        found = read_all(folder)
        wanted = records_of(groups)
        assert found[: len(wanted)] == wanted
        # Frames of the group that came whole before the first lost sector may stay: nobody was told of them.
        assert found[len(wanted) :] == last[: len(found) - len(wanted)]


def test_zeros_within_what_was_synced_are_told_although_the_tail_is_whole(tmp_path: Path) -> None:
    put_all(tmp_path, [[[b"x" * 2000]], [[b"y" * 2000]]], segment_bytes=1 << 20)
    (path,) = segments(tmp_path)
    content = bytearray(path.read_bytes())
    content[512:1024] = bytes(512)
    path.write_bytes(content)
    with pytest.raises(StateError, match="record 0 should follow, but is damaged"):
        read_all(tmp_path)


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    put_all(tmp_path, [[[b"x" * 200]] for _ in range(10)])
    assert len(segments(tmp_path)) >= 4
    segments(tmp_path)[1].unlink()
    with pytest.raises(StateError, match="a file is missing: restore it"):
        read_all(tmp_path)


def test_what_a_failed_append_left_behind_is_not_read(tmp_path: Path) -> None:
    """If the truncation failed too, the next file's first record shows where this one ends."""
    put_all(tmp_path, [[[b"a"]], [[b"b"]]])
    whole = segments(tmp_path)[0].read_bytes()
    files = JournalFiles(tmp_path, SEGMENT_BYTES, None)
    files.recover()
    files.roll()
    files.put(entries([[b"c"]]))
    files.close()
    for leftover in (whole[SEGMENT_HEAD_BYTES:], b"\0" * 700, b"garbage"):
        segments(tmp_path)[0].write_bytes(whole + leftover)
        assert read_all(tmp_path) == [b"a", b"b", b"c"]


def test_a_file_that_was_only_being_made_is_made_anew(tmp_path: Path) -> None:
    put_all(tmp_path, [[[b"a"]]])
    for content in (b"", b"Spw", bytes(SEGMENT_HEAD_BYTES)):
        (tmp_path / f"{1:08d}-{1:016d}.journal").write_bytes(content)
        assert read_all(tmp_path) == [b"a"]
        assert len(segments(tmp_path)) == 1


def test_a_damaged_release_mark_is_told(tmp_path: Path) -> None:
    put_all(tmp_path, [[[b"a"]]])
    (tmp_path / "released").write_text("1?\n")
    with pytest.raises(StateError, match="released is damaged"):
        read_all(tmp_path)


def test_frames_end_where_they_say(tmp_path: Path) -> None:
    """The helpers of this module check the files, so their results must agree."""
    put_all(tmp_path, [[[b"a"], [b"b", b"c"]]], segment_bytes=1 << 20)
    (path,) = segments(tmp_path)
    ends = frame_ends(path)
    assert ends[-1] == path.stat().st_size
    assert [count_before(path, end) for end in ends] == [1, 3]
