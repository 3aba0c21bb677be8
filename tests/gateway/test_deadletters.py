from __future__ import annotations

import os
import threading
from pathlib import Path

import msgspec
import pytest

from gateway.deadletters import DeadLetter, DeadLetterFile
from gateway.statefiles import StateError


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
    threads = [
        threading.Thread(target=lambda make=make: [letters.add([make(i), make(i)]) for i in range(100)])
        for make in (letter, poison)
    ]
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
