"""Records that cannot become events, and events that fail the query alone: kept with place, reason and content."""

from __future__ import annotations

import base64
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from gateway.core.intervals import IntervalSet
from infra.failpoints import reached
from infra.statefiles import StateError, make_folder, sync_folder, write_atomically

DEAD_LETTERS = "dead-letters.jsonl"
"""The name of the file in a query's part of the state_dir."""
KEPT_BYTES = 1 << 16
LIMIT_BYTES = 1_000_000_000
# No page cache has larger pages.
_PAGE_BYTES = 1 << 16


class DeadLettersFullError(OSError):
    """The file has reached its limit; the message says what to do."""


class ReplayRefusedError(Exception):
    """Dead letters cannot be replayed now; the message says why."""


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line of a dead-letter file.

    Attributes:
        reason: why, from the part that refused it.
        raw: its content if that is UTF-8: the original line, or the event as JSON; at most 64 KiB.
        record: its number in the source (from 0), for a record that could not be decoded.
        offset: where it starts in the source, for a record that could not be decoded.
        seq: its seq, for an event that fails the query.
        raw_base64: its content if that is not UTF-8.
        raw_bytes: the length of the whole content, if more than was kept; else -1.
        place: its place in the source, in words, if record and offset do not say it.
        at: when it was added (ISO 8601, UTC).
        replayed: its number among the replayed dead letters, if it was replayed and failed again; else -1.
        stream: of a query with several sources, the one that the record is from, if it could not be decoded.
    """

    reason: str
    raw: str = ""
    record: int = -1
    offset: int = -1
    seq: int = -1
    raw_base64: str = ""
    raw_bytes: int = -1
    place: str = ""
    at: str = ""
    replayed: int = -1
    stream: str = ""

    def kept(self) -> bytes:
        """Return the part of the content that was kept."""
        return base64.b64decode(self.raw_base64) if self.raw_base64 else self.raw.encode()

    @property
    def whole(self) -> bool:
        """Whether the content is complete: not cut, no byte replaced (an earlier version did, and wrote no time)."""
        return self.raw_bytes < 0 and (bool(self.at) or "\ufffd" not in self.raw)


def dead_letter(
    reason: str,
    raw: bytes,
    at_wall_s: float,
    *,
    raw_bytes: int = -1,
    record: int = -1,
    offset: int = -1,
    seq: int = -1,
    place: str = "",
    replayed: int = -1,
    stream: str = "",
) -> DeadLetter:
    """Return the letter for ``raw``, which is cut to 64 KiB.

    Args:
        reason: why.
        raw: the content, or its beginning.
        at_wall_s: now (s since 1970).
        raw_bytes: the length of the whole content if ``raw`` is only its beginning, else -1.
        record: see ``DeadLetter``, also for the next ones.
        offset: see ``DeadLetter``.
        seq: see ``DeadLetter``.
        place: see ``DeadLetter``.
        replayed: see ``DeadLetter``.
        stream: see ``DeadLetter``.
    """
    whole_bytes = max(len(raw), raw_bytes)
    kept = raw[:KEPT_BYTES]
    cut = whole_bytes > len(kept)
    text, encoded = "", ""
    try:
        text = kept.decode()
    except UnicodeDecodeError as error:
        if cut and error.reason == "unexpected end of data":
            text = kept[: error.start].decode()
        else:
            encoded = base64.b64encode(kept).decode()
    at = datetime.fromtimestamp(at_wall_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return DeadLetter(
        reason, text, record, offset, seq, encoded, whole_bytes if cut else -1, place, at, replayed, stream
    )


class _Earlier(msgspec.Struct, frozen=True):
    """The content of earlier files, so that no letter is added twice, and the number of the next replay."""

    record: int = -1
    replayed: int = -1
    seqs: list[tuple[int, int]] = []
    next_replay: int = 0
    records: dict[str, int] = {}


class DeadLetterFile:
    """The dead letters of one query as JSON lines; ``add`` blocks on the disk, and adds no letter twice.

    Ingress and delivery add from separate threads. Undecodable records come in the order of the source, so the last one
    shows which are in the file; events that fail the query come in the order of answers.

    Args:
        path: of the file; the state of earlier files is beside it (``.state.json``).
        limit_bytes: when the file has reached this size, no letter is added.
        on_added: called with letters once they are in the file, on the thread that adds.
    """

    def __init__(
        self,
        path: Path,
        limit_bytes: int = LIMIT_BYTES,
        on_added: Callable[[Sequence[DeadLetter]], None] = lambda _: None,
    ) -> None:
        self._path = path
        self._on_added = on_added
        self._limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._size_bytes = 0
        self._torn = False
        self._tail = b""
        self.count = 0
        earlier = self._read_earlier()
        # By the name of the stream; the only source of a query has none.
        self._last_records = {"": earlier.record, **earlier.records}
        self._last_replayed = earlier.replayed
        self._seqs = IntervalSet(earlier.seqs)
        self._next_replay = earlier.next_replay
        if path.exists():
            self._read()

    def add(self, letters: Sequence[DeadLetter]) -> None:
        """Append the new ones of ``letters`` and return once they are on disk.

        Raises:
            DeadLettersFullError: the file has reached its limit.
            OSError: none of them is in the file; add them again.
        """
        with self._lock:
            self._add(letters)

    def _add(self, letters: Sequence[DeadLetter]) -> None:
        given = {(letter.record, letter.seq, letter.replayed, letter.stream): letter for letter in letters}
        new = [letter for letter in given.values() if not self._is_in(letter)]
        if not new:
            return
        if self._size_bytes >= self._limit_bytes:
            raise DeadLettersFullError(
                errno.EDQUOT,
                f"{self._path} has reached its limit of {self._limit_bytes} bytes: fix what fails and replay the "
                "letters (spillway replay-dead-letters), or raise dead_letters.limit",
            )
        self._mend()
        reached("deadletters.append.before")
        data = msgspec.json.Encoder().encode_lines(new)
        self._tail = self._read_tail()
        self._torn = True
        try:
            self._append(data)
        except OSError:
            # Readers must see whole lines; the next letter makes sure that they are on disk.
            with contextlib.suppress(OSError):
                os.truncate(self._path, self._size_bytes)
            raise
        self._torn = False
        self._size_bytes += len(data)
        self._note(new)
        self._on_added(new)
        reached("deadletters.append.after")

    def _append(self, data: bytes) -> None:
        created = not self._path.exists()
        if created:
            make_folder(self._path.parent)
        with self._path.open("ab") as file:
            file.write(data)
            file.flush()
            reached("deadletters.append.written")
            os.fsync(file.fileno())
        if created:
            sync_folder(self._path.parent)

    def _read_tail(self) -> bytes:
        """Return the part of the file that shares its last page with the next letter."""
        if not self._size_bytes:
            return b""
        with self._path.open("rb") as file:
            file.seek(self._size_bytes - self._size_bytes % _PAGE_BYTES)
            return file.read()

    def _mend(self) -> None:
        """After a failed write or fsync, bring the file back to what was durable.

        A page whose write failed counts as clean from then on. Durable letters may share it, so it is written again.
        """
        if not self._torn:
            return
        if self._path.exists():
            with self._path.open("r+b") as file:
                file.truncate(self._size_bytes)
                file.seek(self._size_bytes - len(self._tail))
                file.write(self._tail)
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._path.parent)
        self._torn = False

    def move_out(self, folder: Path, before_seq: int) -> int:
        """Move all letters into a file of their own in ``folder``, to be replayed, and start a new file.

        The rename decides: before it all letters are here, after it all are there. Their numbers, which are in the
        file's name (first and last), were never used before.

        Args:
            folder: created if it does not exist.
            before_seq: events before it are committed and will not be replayed.

        Returns:
            How many were moved.

        Raises:
            OSError: they may have been moved or not; the reader of ``folder`` first makes it durable.
        """
        with self._lock:
            self._mend()
            if not self.count:
                return 0
            make_folder(folder)
            reached("deadletters.replay.before")
            self._seqs = IntervalSet((max(first, before_seq), last) for first, last in self._seqs if last >= before_seq)
            first, moved = self._next_replay, self.count
            self._write_earlier(first + moved)
            # If the next steps fail, these numbers are skipped.
            self._next_replay = first + moved
            reached("deadletters.replay.noted")
            self._path.rename(folder / f"{first:012d}-{first + moved - 1:012d}.jsonl")
            self._size_bytes, self.count = 0, 0
            reached("deadletters.replay.moved")
            sync_folder(folder)
            sync_folder(self._path.parent)
            reached("deadletters.replay.after")
            return moved

    def drop(self, before_seq: int) -> int:
        """Delete all letters; those of the same records and events are not added again.

        Args:
            before_seq: events before it are committed and will not fail again.

        Returns:
            How many were deleted.

        Raises:
            OSError: they may have been deleted or not; call it again.
        """
        with self._lock:
            self._mend()
            if not self.count:
                return 0
            self._seqs = IntervalSet((max(first, before_seq), last) for first, last in self._seqs if last >= before_seq)
            # From here on they are not added again, whether they are deleted or not.
            self._write_earlier(self._next_replay)
            self._path.unlink(missing_ok=True)
            dropped, self._size_bytes, self.count = self.count, 0, 0
            sync_folder(self._path.parent)
            return dropped

    def _write_earlier(self, next_replay: int) -> None:
        records = dict(self._last_records)
        record = records.pop("")
        earlier = _Earlier(record, self._last_replayed, list(self._seqs), next_replay, records)
        write_atomically(self._state_path, msgspec.json.encode(earlier))

    @property
    def _state_path(self) -> Path:
        return self._path.with_suffix(".state.json")

    def _read_earlier(self) -> _Earlier:
        if not self._state_path.exists():
            return _Earlier()
        try:
            return msgspec.json.decode(self._state_path.read_bytes(), type=_Earlier)
        except msgspec.DecodeError as error:
            raise StateError(f"{self._state_path} is damaged ({error}): restore it") from error

    def _read(self) -> None:
        decoder = msgspec.json.Decoder(DeadLetter)
        with self._path.open("r+b") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                try:
                    self._note([decoder.decode(line)])
                except msgspec.DecodeError as error:
                    raise StateError(f"{self._path} is damaged ({error}): move it away, or restore it") from error
                self._size_bytes += len(line)
            file.truncate(self._size_bytes)

    def _is_in(self, letter: DeadLetter) -> bool:
        if letter.seq >= 0:
            return self._seqs.covers(letter.seq, letter.seq)
        if letter.replayed >= 0:
            return letter.replayed <= self._last_replayed
        return letter.record <= self._last_records.get(letter.stream, -1)

    def _note(self, letters: Sequence[DeadLetter]) -> None:
        for letter in letters:
            if letter.seq >= 0:
                self._seqs.add(letter.seq, letter.seq)
            elif letter.replayed >= 0:
                self._last_replayed = max(self._last_replayed, letter.replayed)
            else:
                last = self._last_records.get(letter.stream, -1)
                self._last_records[letter.stream] = max(last, letter.record)
        self.count += len(letters)
