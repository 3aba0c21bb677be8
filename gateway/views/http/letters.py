"""Reads the dead letters of a query, a page at a time, while the gateway goes on adding some."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from gateway.journal.deadletters import DeadLetter
from gateway.views.http.models import LetterAnswer

_LINE_BYTES_MOST = 1 << 20


def read_letters(path: Path, after: int, limit: int) -> tuple[list[LetterAnswer], int | None]:
    """Return at most ``limit`` letters from a position on, and the position of the next one; None at the end.

    Raises:
        ValueError: no letter begins there.
        OSError: the disk fails.
    """
    decoder, letters = msgspec.json.Decoder(DeadLetter), list[LetterAnswer]()
    try:
        file = path.open("rb")
    except FileNotFoundError:
        # They are replayed, or there were none.
        return _none(after)
    with file:
        size = os.fstat(file.fileno()).st_size
        if after > size:
            raise ValueError(f"no dead letter begins at {after}")
        if after:
            file.seek(after - 1)
            if file.read(1) != b"\n":
                raise ValueError(f"no dead letter begins at {after}")
        position = after
        while len(letters) < limit:
            line = file.readline(_LINE_BYTES_MOST)
            if not line.endswith(b"\n"):
                # The end, or a letter that is being written.
                return letters, None
            try:
                letters.append(_answer(decoder.decode(line), position))
            except msgspec.DecodeError as error:
                raise ValueError(f"the dead letter at {position} of {path} is damaged: {error}") from error
            position += len(line)
        return letters, position if position < size else None


def _none(after: int) -> tuple[list[LetterAnswer], int | None]:
    if after:
        raise ValueError(f"no dead letter begins at {after}")
    return [], None


def _answer(letter: DeadLetter, position: int) -> LetterAnswer:
    return LetterAnswer(
        position=position,
        reason=letter.reason,
        at=letter.at,
        source=_source(letter),
        content=letter.raw_base64 or letter.raw,
        encoding="base64" if letter.raw_base64 else "text",
        complete=letter.whole,
    )


def _source(letter: DeadLetter) -> str:
    if letter.place:
        return letter.place
    if letter.seq >= 0:
        return f"event {letter.seq}"
    if letter.replayed >= 0:
        return f"replayed dead letter {letter.replayed}"
    of = f" of {letter.stream}" if letter.stream else ""
    return f"record {letter.record}{of}" + (f" at byte {letter.offset}" if letter.offset >= 0 else "")
