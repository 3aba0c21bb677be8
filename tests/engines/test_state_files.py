"""A query continues on another machine from a copy of its checkpoint, most of which is sent while it still runs."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import pytest

from engines.streaming.checkpoints import CheckpointError, newest
from engines.streaming.statefiles import BYTES_MOST, StateCopy, StateFile, StateListing, check_bounds
from tests.engines.running_totals import USER, ordered, rows, straight
from tests.engines.stream_bench import Bench, Running

PART_BYTES = 1000


def transfer(start: Path, copy: StateCopy, files: tuple[StateFile, ...]) -> int:
    """Send what is missing in parts; return how many bytes that were."""
    sent_bytes = 0
    for file in copy.missing(files):
        try:
            data = (start / file.path).read_bytes()
        except FileNotFoundError:  # Spark has removed an old version of the state
            continue
        for offset in range(0, max(1, len(data)), PART_BYTES):
            copy.append(file, offset, data[offset : offset + PART_BYTES])
        sent_bytes += len(data)
    return sent_bytes


def here(folder: Path) -> Path:
    found = newest(folder)
    assert found is not None
    return found


def opened(bench: Bench, folder: Path, **spec: Any) -> Running:
    return bench.open(
        function="user_functions:totals", code_path=USER, checkpoint_dir=str(folder), max_batch_runs=2, **spec
    )


@pytest.mark.spark
def test_a_query_moves_there_and_back_with_its_state(bench: Bench, tmp_path: Path) -> None:
    home, away = tmp_path / "home" / "checkpoints", tmp_path / "vm" / "checkpoints"
    home.parent.mkdir()
    found: list[dict[str, Any]] = []
    at_seq = 0
    for folder, other in ((home, away), (away, home), (home, away)):
        running = opened(bench, folder)
        assert running.stream.progress.resume_seq == at_seq
        copy, listing = StateCopy(other), StateListing(here(folder))
        ahead_bytes = 0
        for _ in range(3):
            running.put_seqs(at_seq, rows(at_seq, 20))
            at_seq += 20
            running.rows_until(at_seq)
            ahead_bytes += transfer(here(folder), copy, listing.files())
        found += [row for answer in running.collected.answers for row in answer.rows.to_pylist()]
        running.wait_for_commit(at_seq)
        running.stream.close()
        files = listing.files()
        last_bytes = transfer(here(folder), copy, files)
        assert last_bytes < ahead_bytes, "only what changed last is sent while events are held"
        copy.install(files)
        shutil.rmtree(folder)  # the other machine needs nothing of this one
    assert ordered(found) == ordered(straight(180))


@pytest.mark.spark
def test_an_old_copy_repeats_the_batches_that_the_sink_has(bench: Bench, tmp_path: Path) -> None:
    home, kept = tmp_path / "home", tmp_path / "kept"
    running = opened(bench, home)
    running.put_seqs(0, rows(0, 30))
    running.rows_until(30)
    running.wait_for_commit(30)
    shutil.copytree(here(home), kept)
    at_seq = 30
    for length in (10, 30, 20):  # a batch each, because each is answered before the next one comes
        running.put_seqs(at_seq, rows(at_seq, length))
        at_seq += length
        running.rows_until(at_seq)
    delivered, limits = running.collected.answers[1:], running.limits()[1:]
    running.stream.close()
    shutil.rmtree(home)
    (tmp_path / "home").mkdir()
    kept.rename(home / "1")

    again = opened(bench, home, batch_ends=tuple(end for _, end in limits))
    for seq in range(30, 120, 10):
        again.put_seqs(seq, rows(seq, 10))
    again.rows_until(120)
    assert again.limits()[: len(limits)] == limits
    repeated = again.collected.answers[: len(limits)]
    assert [ordered(answer.rows.to_pylist()) for answer in repeated] == [
        ordered(answer.rows.to_pylist()) for answer in delivered
    ]
    first = running.collected.answers[0].rows.to_pylist()
    rest = [row for answer in again.collected.answers for row in answer.rows.to_pylist()]
    assert ordered(first + rest) == ordered(straight(120))


def listed(path: str, data: bytes) -> StateFile:
    return StateFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def test_a_part_that_does_not_follow_is_refused(tmp_path: Path) -> None:
    copy, file = StateCopy(tmp_path / "checkpoints"), listed("state/0/0/1.zip", b"0123456789")
    assert copy.missing([file]) == [file]
    copy.append(file, 0, b"01234")
    with pytest.raises(CheckpointError, match="bytes 6 to 10 came, but 5 are here"):
        copy.append(file, 6, b"6789")
    with pytest.raises(CheckpointError, match="has not arrived"):
        copy.install([file])
    copy.append(file, 0, b"01234")  # a transfer that was interrupted begins the file anew
    copy.append(file, 5, b"56789")
    assert not copy.missing([file])
    assert (copy.install([file]) / file.path).read_bytes() == b"0123456789"


def test_a_content_that_was_not_announced_is_refused(tmp_path: Path) -> None:
    copy, file = StateCopy(tmp_path / "checkpoints"), listed("state/0/0/1.zip", b"0123456789")
    copy.missing([file])
    with pytest.raises(CheckpointError, match="not announced"):
        copy.append(file, 0, b"012345678x")
    assert copy.missing([file]) == [file]


def test_files_that_are_being_written_and_batches_that_are_not_next_are_not_listed(tmp_path: Path) -> None:
    names = ("commits/0", "offsets/0", "offsets/1", "offsets/.1.crc", "state/0/0/1.delta", "state/0/0/.1.delta.crc")
    others = (
        "offsets/2",
        "offsets/.2.crc",
        "commits/.1.5e.tmp",
        "state/0/0/.2.delta.5e.tmp",
        "state/0/0/..2.5e.tmp.crc",
    )
    for name in (*names, *others):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    assert sorted(file.path for file in StateListing(tmp_path).files()) == sorted(names)


@pytest.mark.parametrize(
    "files",
    [
        [listed("../outside", b"")],
        [listed("/etc/passwd", b"")],
        [listed("state/../../outside", b"")],
        [listed("", b"")],
        [listed("a", b""), listed("a", b"")],
        [StateFile(path="a", size_bytes=BYTES_MOST + 1, sha256="0" * 64)],
        [StateFile(path="a", size_bytes=-1, sha256="0" * 64)],
        [StateFile(path="a", size_bytes=1, sha256="../" + "0" * 61)],
    ],
)
def test_a_list_that_is_no_checkpoint_is_refused(files: list[StateFile]) -> None:
    with pytest.raises(CheckpointError):
        check_bounds(files)


def test_contents_that_are_not_needed_any_more_are_forgotten(tmp_path: Path) -> None:
    copy = StateCopy(tmp_path / "checkpoints")
    old, new = listed("offsets/1", b"old"), listed("offsets/1", b"new")
    copy.missing([old])
    copy.append(old, 0, b"old")
    assert copy.missing([new]) == [new]
    assert copy.missing([old]) == [old]
