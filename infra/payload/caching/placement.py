"""Where the events of a run are among those that a lane has: no I/O."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from infra.payload.errors import PayloadError

Int64Array = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

_PARTS = 3


class Marks(NamedTuple):
    """The selections of a run, ascending by ``row``; each array has the shape (selections,).

    Attributes:
        row: the row of the run with which the selection begins.
        number: its number.
        events: how many events it has.
    """

    row: Int64Array
    number: Int64Array
    events: Int64Array


class Placement(NamedTuple):
    """How a run is made of events that a lane has and of new ones; *all* are both together, in order of seq.

    Attributes:
        new: the places of the new events among all, ascending, shape (new,).
        rows: the places of the run's events among all, ascending, shape (rows,).
        forgotten: the lane forgets so many of all afterwards, the oldest.
        marks: the selections of the run.
    """

    new: Int64Array
    rows: Int64Array
    forgotten: int
    marks: Marks


class ToSend(NamedTuple):
    """What has to be sent for a run.

    Attributes:
        is_new: which of the run's events the lane does not have, shape (rows,).
        placement: what the lane does with them.
        cached: the seqs that the lane has afterwards, ascending.
    """

    is_new: BoolArray
    placement: Placement
    cached: Int64Array


def placed(cached: Int64Array, seqs: Int64Array, open_from: int, most_events: int, marks: Marks) -> ToSend:
    """Return what has to be sent for a run.

    Args:
        cached: the seqs of the events that the lane has, ascending.
        seqs: those of the run's events, ascending, shape (rows,).
        open_from: later runs need no event before this seq.
        most_events: the lane keeps at most so many.
        marks: the selections of the run.
    """
    at = np.searchsorted(cached, seqs)
    is_new = np.ones(len(seqs), dtype=np.bool_)
    inside = at < len(cached)
    is_new[inside] = cached[at[inside]] != seqs[inside]
    new = at[is_new] + np.arange(int(is_new.sum()))
    everything = np.insert(cached, at[is_new], seqs[is_new])
    forgotten = max(int(np.searchsorted(everything, open_from)), len(everything) - most_events)
    placement = Placement(new, np.searchsorted(everything, seqs), forgotten, marks)
    return ToSend(is_new, placement, everything[forgotten:])


def packed(placement: Placement) -> Int64Array:
    """Return a placement as one array: lengths, then ranges of places, then the marks."""
    new, rows = _ranges(placement.new), _ranges(placement.rows)
    head = np.array([new.shape[1], rows.shape[1], len(placement.marks.row), placement.forgotten], dtype=np.int64)
    return np.concatenate([head, new.ravel(), rows.ravel(), *placement.marks])


def unpacked(array: Int64Array, cached: int, new: int, most_events: int) -> Placement:
    """Return the placement that was packed.

    Args:
        array: from the other side.
        cached: how many events the lane has.
        new: how many came with it.
        most_events: a run may have so many.

    Raises:
        PayloadError: it is no placement of so many events.
    """
    if len(array) <= _PARTS or min(array[: _PARTS + 1]) < 0:
        raise PayloadError("a run has no placement")
    news, ranges, marks, forgotten = (int(each) for each in array[: _PARTS + 1])
    if len(array) != _PARTS + 1 + 2 * news + 2 * ranges + 3 * marks:
        raise PayloadError("the placement of a run has another length than it says")
    body = array[_PARTS + 1 :]
    everything = cached + new
    places = _places(body[: 2 * news], everything, new)
    rows = _places(body[2 * news : 2 * (news + ranges)], everything, most_events)
    if len(places) != new:
        raise PayloadError(f"{new} events came, and {len(places)} have a place")
    if forgotten > everything:
        raise PayloadError(f"{forgotten} of {everything} events are to be forgotten")
    return Placement(places, rows, forgotten, Marks(*body[2 * (news + ranges) :].reshape(3, marks)))


def _ranges(places: Int64Array) -> Int64Array:
    """Return ascending places as ranges: where each begins, and how long it is; shape (2, ranges)."""
    begins = np.flatnonzero(np.diff(places, prepend=-2) != 1)
    return np.stack([places[begins], np.diff(begins, append=len(places))]).astype(np.int64)


def _places(ranges: Int64Array, everything: int, most: int) -> Int64Array:
    """Return the places of ranges.

    Raises:
        PayloadError: they do not ascend, are not among all, or are too many.
    """
    begin, length = ranges.reshape(2, -1)
    # Each is checked before sums of them are made, which could overflow.
    if np.any(begin < 0) or np.any(begin > everything) or np.any(length < 1) or np.any(length > everything):
        raise PayloadError(f"a place is not among the {everything} events")
    end = begin + length
    if len(end) and (end[-1] > everything or np.any(begin[1:] < end[:-1])):
        raise PayloadError("the places of a run's events do not ascend")
    count = int(length.sum())
    if count > most:
        raise PayloadError(f"a run has {count:,} events, and {most:,} may be")
    before = np.cumsum(length) - length
    return np.asarray(np.repeat(begin - before, length) + np.arange(count), dtype=np.int64)
