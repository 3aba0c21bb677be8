"""The runs that wait on an engine host, and the socket through which Spark's source process requests them."""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, Listener
from pathlib import Path
from typing import Any

import pyarrow as pa

from engines.reading.counts import ReadCounts
from engines.spark.scratch import scratch_folder
from infra.clock import Clock

# A poll of an idle query costs Spark some milliseconds. With half a second between polls the cost is negligible, and a
# stop of the query does not wait longer than that.
POLL_S = 0.5
# One task may carry at most spark.rpc.message.maxSize (128 MiB). Parts stay far below: a large run becomes several.
PART_BYTES = 16 << 20
_QUESTION_BYTES = 64 << 10


class FeedClosed(Exception):  # noqa: N818 - it is a state, not a fault
    """The feed accepts and returns no more runs."""


@dataclass(frozen=True, eq=False)
class Item:
    """A run in Spark's form.

    Attributes:
        start: its position in the feed.
        end: the position after it.
        parts: its rows, each an Arrow stream that becomes one input partition; empty if it has no rows.
        tag: returned to the owner of the feed together with the run.
        counts: of a run by reference: what was read of its ranges, once that is known.
    """

    start: int
    end: int
    parts: Sequence[pa.Buffer]
    tag: Any = None
    counts: ReadCounts | None = None

    @property
    def size_bytes(self) -> int:
        """Return how much memory the rows take."""
        return sum(part.size for part in self.parts)


def pack(batch: pa.RecordBatch, part_bytes: int = PART_BYTES) -> list[pa.Buffer]:
    """Cut a batch into parts of about ``part_bytes`` (no smaller than a row), each an Arrow stream."""
    if batch.num_rows == 0:
        return []
    rows = max(1, int(batch.num_rows * min(1.0, part_bytes / max(1, batch.nbytes))))
    return [stream_of(batch.slice(at, rows)) for at in range(0, batch.num_rows, rows)]


def stream_of(batch: pa.RecordBatch) -> pa.Buffer:
    """Return one batch, which may be empty, as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


class Feed:
    """The runs that one query has yet to process, in order of position and without gaps.

    Args:
        first: the position at which the feed begins.
        max_items: at most this many runs in one micro-batch.
        max_bytes: ``put`` waits while more than this is held; one run is always accepted.
        clock: records when a micro-batch was planned.
        ends: where the first micro-batches have to end, because the sink has the results of batches with these limits.
        kind_of: returns what no two runs of a micro-batch may have in common; None: they may be equal.
    """

    def __init__(
        self,
        first: int,
        max_items: int,
        max_bytes: int,
        clock: Clock,
        ends: Sequence[int] = (),
        kind_of: Callable[[Item], object] | None = None,
    ) -> None:
        self._kind_of = kind_of
        self._ends = deque(end for end in sorted(ends) if end > first)
        self._first = first
        self._next = first
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._items: deque[Item] = deque()
        self._held_bytes = 0
        self._planned: tuple[Item, ...] = ()
        self._clock = clock
        self.planned_at_s = clock.now()
        self._closed = ""
        self._resting = False
        self._leader: object = None
        self._told = first
        self._changed = threading.Condition()

    @property
    def first_position(self) -> int:
        """Return the position at which the feed begins."""
        return self._first

    @property
    def next_position(self) -> int:
        """Return the position of the next run."""
        return self._next

    @property
    def planned(self) -> tuple[Item, ...]:
        """Return the runs of the micro-batch that Spark planned last."""
        return self._planned

    def put(self, parts: Sequence[pa.Buffer], tag: Any = None, length: int = 1) -> Item:
        """Append a run of ``length`` positions; blocks while the feed is full.

        Raises:
            FeedClosed: the feed is closed, also while waiting.
        """
        with self._changed:
            while self._held_bytes > self._max_bytes and not self._closed:
                self._changed.wait()
            self._check_open()
            item = Item(start=self._next, end=self._next + length, parts=parts, tag=tag)
            self._next = item.end
            self._items.append(item)
            self._held_bytes += item.size_bytes
            self._changed.notify_all()
            return item

    def begin(self) -> None:
        """Expect new readers: a stream starts, for the first time or again."""
        with self._changed:
            self._leader = None

    def latest(self, start: int, wait_s: float = POLL_S, reader: object = "") -> int:
        """Return where the micro-batch that begins at ``start`` ends; ``start`` itself if no run arrived in time.

        A join of events with events has two readers. Spark asks one after the other, and a run may arrive in between.
        So all get the answer of the first one: a micro-batch has the same runs on both sides.
        """
        with self._changed:
            self._leader = self._leader or reader
            if reader != self._leader:
                self._check_open()
                return max(start, self._told)
            self._told = self._latest(start, wait_s)
            return self._told

    def _latest(self, start: int, wait_s: float) -> int:
        while self._ends and self._ends[0] <= start:
            self._ends.popleft()
        enough = self._ends[0] if self._ends else start + 1
        self._changed.wait_for(lambda: self._closed or self._resting or self._next >= enough, wait_s)
        self._check_open()
        if self._resting or self._next < enough:
            return start
        if self._ends:
            return self._ends[0]
        found = [item for item in self._items if item.start >= start][: self._max_items]
        return found[self._different(found) - 1].end if found else start

    def _different(self, items: Sequence[Item]) -> int:
        """Return how many of these runs, from the first on, differ from one another."""
        if self._kind_of is None:
            return len(items)
        kinds = list(map(self._kind_of, items))
        return next((at for at, kind in enumerate(kinds) if kind in kinds[:at]), len(kinds))

    def batch(self, start: int, end: int) -> tuple[Item, ...]:
        """Return the runs between two positions and mark them as planned; waits until all are here."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._resting or self._next >= end)
            self._check_open()
            if self._next < end:
                raise FeedClosed("the query is being stopped")
            found = tuple(item for item in self._items if start <= item.start and item.end <= end)
            if found and (found[0].start, found[-1].end) != (start, end):
                raise FeedClosed(f"batch {start}..{end} does not lie on run borders")
            self._planned = found
            self.planned_at_s = self._clock.now()
            return found

    def replace(self, wanted: Sequence[Item]) -> None:
        """Replace runs by others with the same limits; the next micro-batch gets these."""
        with self._changed:
            by_start = {item.start: item for item in wanted}
            self._items = deque(by_start.get(item.start, item) for item in self._items)
            self._held_bytes = sum(item.size_bytes for item in self._items)
            self._changed.notify_all()

    def release(self, end: int) -> None:
        """Drop every run before ``end``."""
        with self._changed:
            while self._items and self._items[0].end <= end:
                self._held_bytes -= self._items.popleft().size_bytes
            self._changed.notify_all()

    def drop_unplanned(self) -> list[Item]:
        """Empty every run that is not in a micro-batch yet, and return the runs as they were.

        Their positions stay, because Spark may know of them.
        """
        with self._changed:
            planned_end = self._planned[-1].end if self._planned else self._first
            kept, dropped = deque[Item](), list[Item]()
            for item in self._items:
                if item.start < planned_end:
                    kept.append(item)
                else:
                    dropped.append(item)
                    kept.append(Item(start=item.start, end=item.end, parts=()))
                    self._held_bytes -= item.size_bytes
            self._items = kept
            self._changed.notify_all()
            return dropped

    def rest(self) -> None:
        """Offer Spark no new micro-batch, so that its query can be stopped while it waits for one."""
        with self._changed:
            self._resting = True
            self._changed.notify_all()

    def close(self, reason: str) -> None:
        """Close the feed; waiting calls fail with ``FeedClosed``."""
        with self._changed:
            self._closed = reason
            self._items.clear()
            self._held_bytes = 0
            self._changed.notify_all()

    def _check_open(self) -> None:
        if self._closed:
            raise FeedClosed(self._closed)


@dataclass
class FeedServer:
    """Answers Spark's source processes; one thread for each (each running query has one)."""

    _feeds: dict[str, Feed] = field(default_factory=dict)
    _folder: Path = field(init=False)
    _listener: Listener = field(init=False)

    def __post_init__(self) -> None:
        # A folder of mode 0700 with a short path: a Unix socket's path may have 107 bytes.
        self._folder = scratch_folder("feed")
        self._listener = Listener(self.address, "AF_UNIX", backlog=16)
        Path(self.address).chmod(0o600)
        threading.Thread(target=self._accept, name="feed-accept", daemon=True).start()

    @property
    def address(self) -> str:
        """Return the socket's path."""
        return str(self._folder / "s")

    def add(self, name: str, feed: Feed) -> None:
        """Register a feed under a name that was not used before."""
        assert name not in self._feeds, name
        feed.begin()
        self._feeds[name] = feed

    def remove(self, name: str, reason: str) -> None:
        """Close a feed and remove it."""
        feed = self._feeds.pop(name, None)
        if feed is not None:
            feed.close(reason)

    def forget(self, name: str) -> None:
        """Forget a feed, which stays open: another stream goes on with it under another name."""
        self._feeds.pop(name, None)

    def close(self) -> None:
        """Close all feeds and the socket."""
        for name in list(self._feeds):
            self.remove(name, "the engine host ends")
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            try:
                connection = self._listener.accept()
            except OSError:  # closed
                return
            threading.Thread(target=self._serve, args=(connection,), name="feed", daemon=True).start()

    def _serve(self, connection: Connection[bytes, bytes]) -> None:
        # This ends when the other process exits, when the host closes the socket, or after a malformed request.
        with contextlib.suppress(EOFError, OSError, ValueError, KeyError), connection:
            while True:
                question = json.loads(connection.recv_bytes(_QUESTION_BYTES))
                try:
                    answer, parts = self._answer(question, connection)
                except FeedClosed as closed:
                    answer, parts = {"error": str(closed)}, []
                connection.send_bytes(json.dumps(answer).encode())
                for part in parts:
                    connection.send_bytes(part)

    def _answer(self, question: dict[str, Any], reader: object) -> tuple[dict[str, Any], list[pa.Buffer]]:
        feed = self._feeds.get(question["feed"])
        if feed is None:
            raise FeedClosed("it is not open")
        match question["op"]:
            case "first":
                return {"at": feed.first_position}, []
            case "latest":
                return {"at": feed.latest(question["start"], reader=reader)}, []
            case "batch":
                parts = [part for item in feed.batch(question["start"], question["end"]) for part in item.parts]
                return {"parts": len(parts)}, parts
            case unknown:
                raise FeedClosed(f"unknown question {unknown!r}")
