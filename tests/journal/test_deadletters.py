from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.journal.deadletters import KEPT_BYTES, DeadLetter, DeadLetterFile, DeadLettersFullError, dead_letter
from infra.failpoints import installed
from infra.statefiles import StateError


def letter(number: int) -> DeadLetter:
    return DeadLetter("no JSON", "{oops\r\n\u2028", record=number, offset=number * 7)


def poison(seq: int) -> DeadLetter:
    return DeadLetter("division by zero", '{"id":1}', seq=seq)


def kept(path: Path) -> list[DeadLetter]:
    lines = path.read_bytes().split(b"\n")
    assert lines[-1] == b""
    return [msgspec.json.decode(line, type=DeadLetter) for line in lines[:-1]]


def test_nothing_is_kept_twice_also_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "queries" / "dead-letters.jsonl"
    letters = DeadLetterFile(path)
    assert letters.count == 0
    letters.add([letter(3), poison(3)])
    letters.add([letter(3), letter(4)])
    again = DeadLetterFile(path)
    assert again.count == letters.count == 3
    again.add([poison(3), letter(4), poison(4)])
    assert kept(path) == [letter(3), poison(3), letter(4), poison(4)]


def test_torn_at_any_byte_of_its_last_line_it_is_mended(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    DeadLetterFile(path).add([letter(1), letter(2)])
    whole = path.read_bytes()
    for cut in range(whole.index(b"\n") + 1, len(whole)):
        path.write_bytes(whole[:cut])
        letters = DeadLetterFile(path)
        assert letters.count == 1
        letters.add([letter(1), letter(2)])
        assert path.read_bytes() == whole


def test_a_full_disk_leaves_whole_lines_and_the_letters_may_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dead-letters.jsonl"
    letters = DeadLetterFile(path)
    letters.add([letter(1)])

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            letters.add([letter(2)])
    assert kept(path) == [letter(1)]
    letters.add([letter(2)])
    assert kept(path) == [letter(1), letter(2)]
    assert letters.count == 2


def test_two_threads_may_add(tmp_path: Path) -> None:
    letters = DeadLetterFile(tmp_path / "dead-letters.jsonl")

    def add(make: Callable[[int], DeadLetter]) -> None:
        for i in range(100):
            letters.add([make(i), make(i)])

    threads = [threading.Thread(target=add, args=[make]) for make in (letter, poison)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert letters.count == len(kept(tmp_path / "dead-letters.jsonl")) == 200


def test_a_damaged_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    path.write_bytes(b'{"reason": "x"\n{}\n')
    with pytest.raises(StateError, match=r"dead-letters\.jsonl is damaged"):
        DeadLetterFile(path)


OLD = b"""\
{"reason":"not one JSON object","raw":"oops","record":3,"offset":27}
{"reason":"invalid UTF-8","raw":"\xef\xbf\xbd","record":4,"offset":32}
{"reason":"division by zero","raw":"{\\"id\\":12}","seq":12}
"""


def test_a_file_of_the_first_version_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    path.write_bytes(OLD)
    letters = DeadLetterFile(path)
    letters.add([letter(4), poison(12), letter(5)])
    assert path.read_bytes().startswith(OLD)
    first, second, third, added = kept(path)
    assert added == letter(5)
    assert (first.kept(), first.whole) == (b"oops", True)
    assert (third.kept(), third.whole) == (b'{"id":12}', True)
    assert not second.whole, "a byte of it was replaced: nobody knows what it was"


@given(st.binary(max_size=100) | st.text(max_size=30).map(str.encode))
def test_the_content_is_kept_to_the_byte(raw: bytes) -> None:
    made = dead_letter("why", raw, 1_700_000_000.0, record=1)
    again = msgspec.json.decode(msgspec.json.encode(made), type=DeadLetter)
    assert (again, again.kept(), again.whole) == (made, raw, True)
    assert made.at == "2023-11-14T22:13:20.000Z"


@pytest.mark.parametrize("raw", [b"x" * (KEPT_BYTES + 1), b"\xff" * 100_000, b"x" + "\u20ac".encode() * 30_000])
def test_more_than_64_kib_is_cut_and_says_how_long_it_was(raw: bytes) -> None:
    made = dead_letter("why", raw, 0.0)
    assert (made.raw_bytes, made.whole) == (len(raw), False)
    assert raw.startswith(made.kept())
    assert KEPT_BYTES - 3 <= len(made.kept()) <= KEPT_BYTES
    assert bool(made.raw) == (raw[0] != 0xFF), "text stays text although it was cut within a character"
    beginning = dead_letter("why", raw[:10], 0.0, raw_bytes=len(raw))
    assert (beginning.raw_bytes, beginning.whole) == (len(raw), False)


def test_at_its_limit_the_file_takes_no_more_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    letters = DeadLetterFile(path, limit_bytes=1)
    letters.add([letter(1), letter(2)])
    whole = path.read_bytes()
    for again in (letters, DeadLetterFile(path, limit_bytes=1)):
        with pytest.raises(DeadLettersFullError, match=r"limit of 1 bytes: .*replay-dead-letters"):
            again.add([letter(3)])
        again.add([letter(2)])
        assert path.read_bytes() == whole
    assert letters.move_out(tmp_path / "replay", 0) == 2
    letters.add([letter(3)])
    DeadLetterFile(path, limit_bytes=1 << 20).add([letter(4)])
    assert kept(path) == [letter(3), letter(4)]


@pytest.mark.parametrize("place", ["before", "written", "after"])
def test_a_letter_that_a_failing_disk_refused_is_in_once_when_it_is_given_again(tmp_path: Path, place: str) -> None:
    path = tmp_path / "dead-letters.jsonl"
    letters = DeadLetterFile(path)
    letters.add([letter(1)])
    with installed(f"deadletters.append.{place}=eio@1"):
        with pytest.raises(OSError, match="failpoint"):
            letters.add([letter(2), letter(3)])
        letters.add([letter(2), letter(3)])
        assert kept(path) == [letter(1), letter(2), letter(3)]
        assert DeadLetterFile(path).count == letters.count == 3


def test_after_a_failed_fsync_what_was_durable_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "dead-letters.jsonl"
    letters = DeadLetterFile(path)
    many = [dead_letter("why", b"x" * 1000, 0.0, record=i) for i in range(100)]
    letters.add(many)
    durable = path.read_bytes()
    assert len(durable) > 1 << 16

    def lost(_: int) -> None:
        # What the kernel may do: the page is as it was on some earlier day, and counts as written.
        damaged = bytearray(path.read_bytes())
        damaged[1 << 16 :] = bytes(len(damaged) - (1 << 16))
        path.write_bytes(damaged)
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", lost)
        for _ in range(2):
            with pytest.raises(OSError, match="Input/output"):
                letters.add([letter(100)])
    letters.add([letter(100)])
    assert path.read_bytes().startswith(durable)
    assert kept(path) == [*many, letter(100)]


def test_what_was_moved_out_does_not_come_in_again(tmp_path: Path) -> None:
    path, replay = tmp_path / "dead-letters.jsonl", tmp_path / "replay"
    letters = DeadLetterFile(path)
    assert letters.move_out(replay, 0) == 0
    letters.add([letter(1), letter(5), poison(3), poison(9)])
    assert letters.move_out(replay, before_seq=7) == 4
    assert letters.count == 0
    assert [file.name for file in replay.iterdir()] == ["000000000000-000000000003.jsonl"]
    assert kept(replay / "000000000000-000000000003.jsonl") == [letter(1), letter(5), poison(3), poison(9)]
    again_failed = dead_letter("again", b"{", 0.0, replayed=0)
    for is_new in (False, True):
        again = DeadLetterFile(path) if is_new else letters
        again.add([letter(5), poison(9), letter(6), again_failed])
        assert kept(path) == [letter(6), again_failed]
    assert DeadLetterFile(path).move_out(replay, before_seq=7) == 2
    assert (replay / "000000000004-000000000005.jsonl").exists()
    last = DeadLetterFile(path)
    last.add([again_failed, letter(6)])
    assert last.count == 0


@pytest.mark.parametrize("place", ["before", "noted", "moved", "after"])
def test_a_move_that_fails_anywhere_loses_no_letter(tmp_path: Path, place: str) -> None:
    path, replay = tmp_path / "dead-letters.jsonl", tmp_path / "replay"
    letters = DeadLetterFile(path)
    letters.add([letter(1), letter(2)])
    with installed(f"deadletters.replay.{place}=eio@1"):
        with pytest.raises(OSError, match="failpoint"):
            letters.move_out(replay, 0)
        for is_new in (False, True):
            moving = DeadLetterFile(path) if is_new else letters
            moving.move_out(replay, 0)
            assert [found for file in replay.iterdir() for found in kept(file)] == [letter(1), letter(2)]
            moving.add([letter(2)])
            assert moving.count == 0


def test_what_was_dropped_is_gone_and_does_not_come_in_again(tmp_path: Path) -> None:
    path = tmp_path / "dead-letters.jsonl"
    letters = DeadLetterFile(path)
    letters.add([letter(1), poison(5)])
    assert letters.drop(0) == 2
    assert letters.drop(0) == 0
    for again in (letters, DeadLetterFile(path)):
        assert (again.count, path.exists()) == (0, False)
        again.add([letter(1), poison(5)])
        assert again.count == 0
    again.add([letter(2)])
    assert kept(path) == [letter(2)]
    assert again.move_out(tmp_path / "replay", 0) == 1
    assert [path.name for path in (tmp_path / "replay").iterdir()] == ["000000000000-000000000000.jsonl"]
