"""Counts lost, repeated and disordered results of a run, from the sink's files alone.

``engines.email.oracle`` gives the right answers, once per mail; a replay only changes ids. This module shares no code
with the gateway's sink, so a bug there cannot hide here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from engines.email.mailbox import Mail
from engines.email.oracle import MailAnswer, answer

_PART = re.compile(r"(\d+)-(\d+)-(\d+)(\.late)?\.jsonl")
NO_EVENT = -1


class SinkVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a sink folder, compared with the right answers.

    Attributes:
        results: rows found.
        lost: missing rows; a row with any wrong field counts as lost.
        duplicated: superfluous rows: repeated, never asked for, or wrong.
        order_violations: rows after a row of a later event, outside the parts marked late.
        late: rows in parts marked late.
    """

    results: int
    lost: int
    duplicated: int
    order_violations: int
    late: int

    @property
    def clean(self) -> bool:
        """Whether every answer is there once and in order."""
        return not (self.lost or self.duplicated or self.order_violations)


class ExpectedResults:
    """The right answer of each mail of a replay's base; computed once, used for each run.

    Raises:
        ValueError: two mails share an id, so their answers cannot be distinguished.
    """

    def __init__(self, base: Sequence[Mail]) -> None:
        self._answers = [answer(mail) for mail in base]
        self._places = {mail.message_id: place for place, mail in enumerate(base)}
        if len(self._places) != len(base):
            raise ValueError(f"{len(base) - len(self._places)} mails share an id with another; keep the first of each")

    def counts(self, events: int) -> NDArray[np.int64]:
        """Return how many rows (0 or 1) each event should leave; shape (events,)."""
        kept = np.array([one is not None for one in self._answers], dtype=np.int64)
        return np.resize(kept, events)

    def event(self, row: MailAnswer, events: int) -> int:
        """Return the number of the event to which ``row`` is the right answer, else -1."""
        place, loop = self._places.get(row.message_id), 0
        if place is None:
            name, _, suffix = row.message_id.rpartition("#")
            place = self._places.get(name)
            if place is None or not (suffix.isascii() and suffix.isdigit()) or suffix.startswith("0"):
                return NO_EVENT
            loop = int(suffix)
        wanted = self._answers[place]
        number = loop * len(self._answers) + place
        if wanted is None or number >= events:
            return NO_EVENT
        return number if row == msgspec.structs.replace(wanted, message_id=row.message_id) else NO_EVENT


def verify(folder: Path, expected: ExpectedResults, events: int) -> SinkVerdict:
    """Compare a sink's parts with the answers to the first ``events`` events of the replay.

    Raises:
        FileNotFoundError: the folder does not exist.
    """
    parts = ((_events_of(path, expected, events), late) for path, late in _parts(folder))
    return judge(parts, expected, events)


def judge(
    parts: Iterable[tuple[NDArray[np.int64], bool]], expected: ExpectedResults, events: int, streams: int = 1
) -> SinkVerdict:
    """Compare results with the answers to the first ``events`` events of the replay.

    Args:
        parts: (the event of each result, -1 if it is the right answer to none; whether they are marked late), in order
            of release.
        expected: the answers.
        events: how many were played.
        streams: order holds within each: event n is of stream n modulo their number.
    """
    found = np.zeros(events, dtype=np.int64)
    results = strange = violations = late_rows = 0
    newest = np.full(streams, NO_EVENT)
    for numbers, late in parts:
        known = numbers[numbers != NO_EVENT]
        results += len(numbers)
        strange += len(numbers) - len(known)
        late_rows += len(numbers) if late else 0
        found += np.bincount(known, minlength=events)
        for stream in range(streams):
            own = known[known % streams == stream]
            before = np.maximum.accumulate(np.concatenate([newest[stream : stream + 1], own]))
            violations += 0 if late else int((own < before[:-1]).sum())
            newest[stream] = before[-1]
    wanted = expected.counts(events)
    return SinkVerdict(
        results=results,
        lost=int(np.maximum(wanted - found, 0).sum()),
        duplicated=int(np.maximum(found - wanted, 0).sum()) + strange,
        order_violations=violations,
        late=late_rows,
    )


def _parts(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Yield (part, whether it is marked late) in order of release."""
    for path in sorted(folder.iterdir()):
        match = _PART.fullmatch(path.name)
        if match:
            yield path, match[4] is not None


def _events_of(path: Path, expected: ExpectedResults, events: int) -> NDArray[np.int64]:
    decoder = msgspec.json.Decoder(MailAnswer)
    numbers: list[int] = []
    for line in path.read_bytes().splitlines():
        try:
            numbers.append(expected.event(decoder.decode(line), events))
        except (msgspec.DecodeError, UnicodeDecodeError):
            numbers.append(NO_EVENT)
    return np.array(numbers, dtype=np.int64)
