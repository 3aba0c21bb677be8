"""Creates dead letters for the rows without a result in an answer, and logs them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pyarrow as pa

from gateway.journal.deadletters import DeadLetter, dead_letter
from gateway.query.flow.lane import Answer
from gateway.query.flow.run import Run
from gateway.query.flow.statistics import Tally
from infra.clock import Clock
from infra.messages import HEARTBEAT, SELECTIONS
from infra.rows.base import DeadRecord

_LOG = logging.getLogger(__name__)
PAUSE_S = 60.0


def letters_of(answer: Answer, runs: Sequence[Run], now_wall_s: float) -> Iterator[DeadLetter]:
    """Yield a letter for each row of ``runs`` that fails the query, and for each that came too late.

    Of runs by reference that were loaded also for each record that is no event.
    """
    for run in runs:
        yield from (letter_of_dead(dead, now_wall_s, seq) for seq, dead in run.dead)
    if not answer.poison and not answer.late:
        return
    reasons = {**dict.fromkeys(answer.late, _why_late(answer.watermark_ms)), **dict(answer.poison)}
    for run in runs:
        seqs = sorted(seq for seq in reasons if run.reports(seq))
        # All at once: of a micro-batch there may be thousands.
        rows = run.batch.take(pa.array([run.row_of(seq) for seq in seqs], pa.int64())).to_pylist()
        for seq, row in zip(seqs, rows, strict=True):
            row.pop(HEARTBEAT, None)
            row.pop(SELECTIONS, None)
            yield dead_letter(reasons[seq], msgspec.json.encode(row), now_wall_s, seq=seq)


def letter_of_dead(dead: DeadRecord, now_wall_s: float, seq: int = -1) -> DeadLetter:
    """Return the letter for a record that is no event.

    Without a seq it must come in the order of the source, as its number tells whether it is in the file already.
    """
    return dead_letter(
        dead.reason,
        dead.raw,
        now_wall_s,
        raw_bytes=dead.raw_bytes,
        record=dead.record,
        offset=dead.offset,
        seq=seq,
        place=dead.place,
        replayed=dead.replayed,
        stream=dead.stream,
    )


def letters_of_dropped(
    openings: pa.RecordBatch, seqs: Sequence[int], most_open: int, now_wall_s: float
) -> Iterator[DeadLetter]:
    """Yield a letter for each selection that ended without a result, because too many were open.

    Args:
        openings: the event with which each one opened.
        seqs: their seqs.
        most_open: how many may be open.
        now_wall_s: now (s since 1970).
    """
    reason = (
        f"the selection that this event opened ended without a result: more than {most_open:,} were open; close them "
        "sooner, open fewer, or raise max_open"
    )
    for seq, row in zip(seqs, openings.to_pylist(), strict=True):
        yield dead_letter(reason, msgspec.json.encode(row), now_wall_s, seq=seq)


def _why_late(watermark_ms: int) -> str:
    at = datetime.fromtimestamp(watermark_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f"it came too late: everything up to {at} was complete"


class LetterLog:
    """Counts the new dead letters of one query and logs them at most once in ``PAUSE_S``.

    Args:
        query: its name.
        path: of the dead-letter file.
        tally: counts them for the report.
        clock: time.
    """

    def __init__(self, query: str, path: Path, tally: Tally, clock: Clock) -> None:
        self._query = query
        self._path = path
        self._tally = tally
        self._clock = clock
        self._lock = threading.Lock()
        self._logged_s: float | None = None
        self._untold = 0
        self._reason = ""

    def added(self, letters: Sequence[DeadLetter]) -> None:
        """Note letters that are on disk; any thread may call."""
        with self._lock:
            self._tally.dead_letters += len(letters)
            if not self._untold:
                self._reason = letters[0].reason
            self._untold += len(letters)
            now_s = self._clock.now()
            if self._logged_s is not None and now_s - self._logged_s < PAUSE_S:
                return
            untold, self._untold, self._logged_s = self._untold, 0, now_s
        text = "query %s: %d more dead letters in %s; the first reason: %s"
        _LOG.warning(text, self._query, untold, self._path, self._reason)
