"""What could not become an event, or fails the query by itself: kept with its place, reason and content."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from gateway.intervals import IntervalSet
from gateway.statefiles import StateError


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a dead-letter file.

    Attributes:
        reason: why, in the words of who refused it.
        record: its number in the source (from 0), for what could not be decoded.
        offset: where it starts in the source, for what could not be decoded.
        seq: its seq, for an event that fails the query.
        raw: its content: the line as it was (undecodable bytes replaced), or the event as JSON.
    """

    reason: str
    raw: str
    record: int = -1
    offset: int = -1
    seq: int = -1


class DeadLetterFile:
    """The dead letters of one query as JSON lines; ``add`` blocks on the disk, and adds nothing twice.

    Ingress and delivery add from threads of their own. Undecodable records come in the order of the source, so the
    last one tells which are in; events that fail the query come as lanes answer.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._last_record = -1
        self._seqs = IntervalSet()
        self.count = 0
        if path.exists():
            lines = path.read_bytes().splitlines(keepends=True)
            whole = [line for line in lines if line.endswith(b"\n")]
            try:
                letters = [msgspec.json.decode(line, type=DeadLetter) for line in whole]
            except msgspec.DecodeError as error:
                raise StateError(f"{path} is damaged ({error}): move it away, or restore it") from error
            os.truncate(path, sum(map(len, whole)))
            self._note(letters)

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Append ``letters`` that are new and return once they are on the disk.

        Raises:
            OSError: none of them is in; they may be given again.
        """
        with self._lock:
            self._add(letters)

    def _add(self, letters: Sequence[DeadLetter]) -> None:
        given = {(letter.record, letter.seq): letter for letter in letters}
        new = [letter for letter in given.values() if not self._is_in(letter)]
        if not new:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.touch()
        before_bytes = self._path.stat().st_size
        try:
            with self._path.open("ab") as file:
                file.write(msgspec.json.Encoder().encode_lines(new))
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            os.truncate(self._path, before_bytes)
            raise
        self._note(new)

    def _is_in(self, letter: DeadLetter) -> bool:
        return letter.record <= self._last_record if letter.seq < 0 else self._seqs.covers(letter.seq, letter.seq)

    def _note(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            self._last_record = max(self._last_record, letter.record)
            if letter.seq >= 0:
                self._seqs.add(letter.seq, letter.seq)
        self.count += len(letters)
