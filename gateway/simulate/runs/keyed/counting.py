"""What a simulated query with keys computes: how often each key came so far. And an oracle that knows it, too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from engines.streaming.feed import Item
from gateway.query.flow.run import Run
from gateway.simulate.options import KeyLoad
from gateway.simulate.runs.promises import BrokenPromiseError
from gateway.simulate.runs.stateful.keptstate import Checkpoint, StatefulEngine
from infra.messages import HEARTBEAT
from policies.arrays import Array, IntArray

KEY, TIME = "key", "at"
_JITTER_US = 200_000
_US = 1e6


class KeyedRows:
    """Draws the keys and times of events.

    Args:
        load: how popular keys are.
        draw: random numbers.
    """

    def __init__(self, load: KeyLoad, draw: np.random.Generator) -> None:
        self._load = load
        self._draw = draw
        weights = np.arange(1, load.keys + 1) ** -load.skew
        self._popular: Array = np.append(weights / weights.sum() * (1.0 - load.hot), load.hot).cumsum()
        self._keys: IntArray = draw.permutation(load.keys + 1)
        self._changes_s = load.changes_s

    def __call__(self, events: int, until_s: float) -> pa.RecordBatch:
        """Return the rows of so many events, the last of which came at this time."""
        if self._load.changes_s and until_s >= self._changes_s:
            self._changes_s = until_s + self._load.changes_s
            self._keys = self._draw.permutation(self._keys)
        ranks = np.searchsorted(self._popular, self._draw.random(events) * self._popular[-1])
        times_us = int(until_s * _US) - self._draw.integers(0, _JITTER_US, events)
        return pa.RecordBatch.from_arrays([pa.array(self._keys[ranks]), pa.array(times_us)], names=[KEY, TIME])


@dataclass(frozen=True, slots=True)
class Counts:
    """The state of a part: how often each key came, and the newest event time, which is what a watermark follows."""

    of_key: IntArray = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    newest_us: int = 0


@dataclass(frozen=True, slots=True)
class CountsAnswer:
    """The results of a micro-batch: its keys, ascending, with their counts after it, and the newest event time."""

    keys: IntArray
    counts: IntArray
    newest_us: int


def counted(state: Counts, piece: Run) -> tuple[Counts, CountsAnswer]:
    """Return the state after what a part gets of a micro-batch, and the results; a heartbeat has only a time."""
    keys, times_us, marks = (piece.batch.column(name).to_numpy(zero_copy_only=False) for name in (KEY, TIME, HEARTBEAT))
    own = keys[~marks]
    of_key = np.bincount(own, minlength=len(state.of_key))
    of_key[: len(state.of_key)] += state.of_key
    newest_us = max(state.newest_us, int(times_us.max()))
    found = np.unique(own)
    return Counts(of_key, newest_us), CountsAnswer(found, of_key[found], newest_us)


@dataclass(slots=True)
class CountedCheckpoint(Checkpoint):
    """A checkpoint with its state."""

    state: Counts = field(default_factory=Counts)


class CountingEngine(StatefulEngine):
    """A part, open on a host; its micro-batches are the runs that it gets.

    Attributes:
        on_refused: called with the reason when it refuses a run; None where that is never to happen.
    """

    checkpoint: CountedCheckpoint
    on_refused: Callable[[str], None] | None = None
    _after: Counts

    def _refuse(self, why: str) -> None:
        if self.on_refused is None:
            super()._refuse(why)
        else:
            self.on_refused(why)

    def _results(self, items: Sequence[Item]) -> CountsAnswer:
        (item,) = items
        self._after, answer = counted(self.checkpoint.state, item.tag[0])
        return answer

    def _keep_state(self) -> None:
        self.checkpoint.state = self._after


class CountsOracle:
    """Knows all events, undivided, and what each key's count was after each of them.

    Args:
        query: its name.
        keys: how many keys there are.
    """

    def __init__(self, query: str, keys: int) -> None:
        self._query = query
        self._of_key: IntArray = np.zeros(keys, dtype=np.intp)
        self._events = 0
        # By seq: the key, how often it came up to there, and the newest time up to there.
        self._keys: IntArray = np.zeros(1024, dtype=np.intp)
        self._counts: IntArray = np.zeros(1024, dtype=np.intp)
        self._newest_us: IntArray = np.zeros(1024, dtype=np.intp)

    def logged(self, run: Run) -> None:
        """Take the next run."""
        first, end = self._events, run.last_seq + 1
        while end > len(self._keys):
            self._keys, self._counts, self._newest_us = (
                np.concatenate([each, np.zeros_like(each)]) for each in (self._keys, self._counts, self._newest_us)
            )
        keys = run.batch.column(KEY).to_numpy()
        newest_us = self._newest_us[first - 1] if first else 0
        self._keys[first:end] = keys
        self._newest_us[first:end] = np.maximum(newest_us, np.maximum.accumulate(run.batch.column(TIME).to_numpy()))
        by_key = np.argsort(keys, kind="stable")
        starts = np.searchsorted(keys[by_key], keys[by_key])
        self._counts[first + by_key] = self._of_key[keys[by_key]] + np.arange(1, len(keys) + 1) - starts
        self._of_key += np.bincount(keys, minlength=len(self._of_key))
        self._events = end

    def check_part(self, answer: CountsAnswer, first_seq: int, last_seq: int, who: str) -> None:
        """Check what one part answers.

        Raises:
            BrokenPromiseError: a count, or the newest time, is wrong.
        """
        keys, counts = self._last(first_seq, last_seq)
        at = np.minimum(np.searchsorted(keys, answer.keys), len(keys) - 1)
        if not np.array_equal(keys[at], answer.keys) or not np.array_equal(counts[at], answer.counts):
            raise BrokenPromiseError(
                f"{who}: {first_seq}-{last_seq}: the keys {answer.keys} have {answer.counts}, not {counts[at]}"
            )
        if answer.newest_us != self._newest_us[last_seq]:
            raise BrokenPromiseError(
                f"{who}: {first_seq}-{last_seq}: the newest time is {answer.newest_us}, not {self._newest_us[last_seq]}"
            )

    def check_all(self, answers: Sequence[CountsAnswer], first_seq: int, last_seq: int) -> None:
        """Check what the sink gets: each key of a micro-batch once, with its count.

        Raises:
            BrokenPromiseError: a key is missing, or there twice, or its count is wrong.
        """
        keys, counts = self._last(first_seq, last_seq)
        found = np.concatenate([answer.keys for answer in answers])
        order = np.argsort(found, kind="stable")
        sums = np.concatenate([answer.counts for answer in answers])[order]
        if not np.array_equal(found[order], keys) or not np.array_equal(sums, counts):
            raise BrokenPromiseError(f"{self._query}: the sink gets wrong results for {first_seq}-{last_seq}")

    def _last(self, first_seq: int, last_seq: int) -> tuple[IntArray, IntArray]:
        """Return the keys of a range, ascending, and their counts at its end."""
        keys, at = np.unique(self._keys[first_seq : last_seq + 1][::-1], return_index=True)
        return keys, self._counts[last_seq - at]
