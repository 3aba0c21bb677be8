"""Isolates the bad rows of runs whose micro-batch failed, in the background; the query's next runs go on."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa

from engines.isolation.isolate import BrokenError, ExhaustedError, Span, broken_by_too_many, check_memory, isolate
from engines.isolation.verdicts import EVALUATION_ERRORS, Verdicts
from engines.query.known import KnownQuery
from engines.query.reasons import why
from engines.spark.session import sibling
from engines.streaming.activity import Activity
from engines.streaming.answers import Reports, RunOutcome
from engines.streaming.feed import Item
from engines.streaming.stream import OnDeath
from engines.streaming.tables import one_batch, unpack
from infra.clock import Clock
from infra.messages import Poison

_log = logging.getLogger("spillway.host")

HELD_BYTES = 64 << 20
"""The limit of decoded rows that wait (the runs of one micro-batch are always accepted)."""

RUN_S = 300.0
"""A run that takes longer fails the query: 2,000 rows that all fail in a Python function take a fifth of it."""

_ROUNDS = 3
_ALONE_MOST = 2
"""After this many runs in a row that fail alone too, the first of them is isolated before any other run is tried."""

_REST_MOST_S = 10.0
"""Twenty rows that fail in a Python function take 1 to 3 s on a busy machine: the pause may be three times as long."""

_CLOSE_S = 5.0

T = TypeVar("T")


class _Forgotten(Exception):  # noqa: N818 - it is a state, not a fault
    """The run was dropped meanwhile."""


@dataclass(eq=False)
class _Held:
    """A run that waits to be isolated.

    Attributes:
        item: the run.
        batch_id: the micro-batch that failed.
        since_s: when it failed.
        group: name of its Spark jobs; each owner has another.
        late: whether it took too long.
        exhausts: whether it needed more memory than there is when it was tried alone.
    """

    item: Item
    batch_id: int
    since_s: float
    group: str
    late: bool = False
    exhausts: bool = False


class Isolation:
    """Answers the runs of one query that failed in a micro-batch; reports their bad rows, and only these, as poison.

    A thread, which starts with the first such run, evaluates each run alone, and then looks for the bad rows of the
    runs that fail alone, too. Its Spark jobs use a scheduler pool that comes after all others.

    Args:
        query: the query.
        clock: measures how long a run takes.
        reports: called on that thread; ``death`` when isolation itself fails. Isolation stops when the query is broken,
            dead, or has exhausted its host.
        activity: records when Spark runs the query.
        rest: returns how long to pause after Spark has worked, as a multiple of the time that it worked.
        run_s: the time limit of one run.
    """

    def __init__(
        self,
        query: KnownQuery,
        clock: Clock,
        reports: Reports,
        activity: Activity,
        rest: Callable[[], float] = lambda: 0.0,
        run_s: float = RUN_S,
    ) -> None:
        self._query = query
        self._name = query.spec.query
        self._clock = clock
        self._reports = reports
        self._activity = activity
        self._rest_times = rest
        self._run_s = run_s
        self._changed = threading.Condition()
        self._untried: deque[_Held] = deque()
        self._failed: deque[_Held] = deque()
        self._held_bytes = 0
        self._failed_alone = 0
        self._owners = 0
        self._ended = False
        self._thread: threading.Thread | None = None

    def put(self, items: Sequence[Item], batch_id: int) -> None:
        """Accept the runs of a micro-batch that failed; blocks while too much waits. Does nothing once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._held_bytes <= HELD_BYTES)
            if self._ended:
                return
            now_s = self._clock.now()
            self._untried += [_Held(item, batch_id, now_s, self._group) for item in items]
            self._held_bytes += sum(item.size_bytes for item in items)
            self._changed.notify_all()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name=f"isolate-{self._name}", daemon=True)
                self._thread.start()

    def forget(self) -> None:
        """Drop all runs, with the one in progress: their owner is gone."""
        with self._changed:
            group = self._group
            self._owners += 1
            waiting = [*self._untried, *self._failed]
            self._held_bytes -= sum(held.item.size_bytes for held in waiting)
            self._untried.clear()
            self._failed.clear()
            self._changed.notify_all()
        if waiting:
            # The caller does not wait for Spark.
            threading.Thread(target=self._cancel, args=[group], name=f"forget-{self._name}", daemon=True).start()

    def close(self) -> None:
        """Stop; return when Spark has finished its jobs, or after some seconds."""
        with self._changed:
            self._ended = True
        self.forget()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_CLOSE_S)

    # ------------------------------------------------------------------------------------------- on the own thread

    def _work(self) -> None:
        try:
            self._judge_all()
        except Exception as error:
            self._end(self._reports.death, f"looking for rows that fail: {why(error)}")

    def _judge_all(self) -> None:
        session = sibling(self._query.base)
        # Of pools with equal shares Spark serves the first by name, and `~` comes after all letters.
        session.sparkContext.setLocalProperty("spark.scheduler.pool", f"~{self._name}")
        self._verdicts = Verdicts(self._query, session)
        while (held := self._next()) is not None:
            try:
                session.sparkContext.setJobGroup(held.group, f"rows of {self._name} that fail", True)
                if held in self._failed:
                    self._isolate_in_time(held)
                else:
                    self._try_alone(held)
            except _Forgotten:
                continue
            except BrokenError as error:
                self._end(self._reports.broken, str(error))
            except ExhaustedError as error:
                self._end(self._reports.exhausted, str(error))

    def _end(self, tell: OnDeath, reason: str) -> None:
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        tell(reason)

    def _next(self) -> _Held | None:
        """Return the next run, which stays in the queue until it is answered; None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._ended or self._untried or self._failed)
            if self._ended:
                return None
            return self._first_untried() or self._failed[0]

    def _try_alone(self, held: _Held) -> None:
        """Answer a run that passes alone: another run of its batch failed, or the cause has passed."""
        rows = unpack(held.item.parts, self._query.run_schema)
        try:
            results = self._asked(held, lambda: self._verdicts.results(rows)) if rows.num_rows else None
        except EVALUATION_ERRORS as error:
            exhausts = check_memory(str(error), shares_host=self._query.spec.shares_host)
            with self._changed:
                self._failed_alone += 1
                held.exhausts = exhausts
                if held in self._untried:
                    self._untried.remove(held)
                    self._failed.append(held)
            return
        self._answer(held, results, {})

    def _isolate_in_time(self, held: _Held) -> None:
        timer = threading.Timer(self._run_s, self._late, [held])
        timer.daemon = True
        timer.start()
        try:
            self._isolate(held)
        finally:
            timer.cancel()

    def _isolate(self, held: _Held) -> None:
        rows = unpack(held.item.parts, self._query.run_schema)
        try:
            self._asked(held, lambda: self._verdicts.results(rows.slice(0, 0)))
        except EVALUATION_ERRORS as error:
            raise BrokenError(f"the query fails even without rows: {why(error)}") from error
        bad: dict[int, str] = {}
        reason = ""
        for _ in range(_ROUNDS):
            left = [row for row in range(rows.num_rows) if row not in bad]
            bad |= {left[row]: said for row, said in self._bad_rows(held, _taken(rows, left)).items()}
            good = _taken(rows, [row for row in left if row not in bad])
            try:
                results = self._asked(held, lambda good=good: self._verdicts.results(good))  # type: ignore[misc]
            except EVALUATION_ERRORS as error:
                reason = why(error)
            else:
                self._answer(held, results, bad)
                return
        raise BrokenError(f"rows that pass alone fail together: {reason}")

    def _bad_rows(self, held: _Held, rows: pa.RecordBatch) -> dict[int, str]:
        def judge(spans: Sequence[Span]) -> Sequence[str]:
            # Other runs, which may be good, do not wait for this one.
            while (other := self._first_untried()) is not None:
                self._try_alone(other)
            return self._asked(held, lambda: self._verdicts.of(rows, spans))

        most = self._query.spec.bad_rows_most
        with broken_by_too_many(most):
            return isolate(rows.num_rows, judge, most, exhausts=held.exhausts)

    def _rest(self, held: _Held, worked_s: float) -> None:
        """Leave the CPUs to others for a while; planning and new Python workers do not obey pools."""
        rest_s = min(self._rest_times() * worked_s, _REST_MOST_S)
        with self._changed:
            self._changed.wait_for(lambda: self._ended or held.group != self._group, rest_s)

    def _first_untried(self) -> _Held | None:
        """Return the next run to try alone; None while runs that failed must be isolated first."""
        with self._changed:
            if self._failed and self._failed_alone >= _ALONE_MOST:
                return None
            return self._untried[0] if self._untried else None

    def _asked(self, held: _Held, ask: Callable[[], T]) -> T:
        """Return Spark's result, unless the job was cancelled: then there is no result.

        Raises:
            _Forgotten: the run was dropped.
            BrokenError: it took too long.
        """
        self._check(held)
        began_s = self._clock.now()
        try:
            with self._activity.running():
                return ask()
        finally:
            self._rest(held, self._clock.now() - began_s)
            self._check(held)

    def _check(self, held: _Held) -> None:
        if self._ended or held.group != self._group:
            raise _Forgotten
        if held.late:
            first_seq = getattr(getattr(held.item.tag, "run", None), "first_seq", "")
            raise BrokenError(
                f"isolating the rows of run {first_seq} that fail took more than {self._run_s:.0f} s: fix the "
                "query, its schema or the source, or let runs hold fewer events (runs.max_events)"
            )

    def _answer(self, held: _Held, results: pa.Table | None, bad: dict[int, str]) -> None:
        schema = self._query.result_schema
        rows = one_batch(schema.empty_table() if results is None else results, schema)
        poison = tuple(Poison(row=row, reason=reason) for row, reason in sorted(bad.items()))
        with self._changed:
            if held not in self._untried and held not in self._failed:
                return  # dropped meanwhile
            (self._untried if held in self._untried else self._failed).remove(held)
            self._failed_alone = 0
            self._held_bytes -= held.item.size_bytes
            self._changed.notify_all()
        self._reports.answers([RunOutcome((held.item,), rows, poison, held.batch_id, self._clock.now() - held.since_s)])

    # ---------------------------------------------------------------------------------------------- on any thread

    @property
    def _group(self) -> str:
        return f"isolate-{self._name}-{id(self)}-{self._owners}"

    def _late(self, held: _Held) -> None:
        held.late = True
        self._cancel(held.group)

    def _cancel(self, group: str) -> None:
        """Cancel the jobs of a group, including one that is about to start."""
        context = self._query.base.sparkContext
        try:
            context._jsc.sc().cancelJobGroupAndFutureJobs(group)  # noqa: SLF001 - PySpark's method leaves out future ones
        except Exception as error:
            _log.info("the jobs of %s cannot be cancelled, Spark has ended: %s", group, why(error))


def _taken(rows: pa.RecordBatch, wanted: Sequence[int]) -> pa.RecordBatch:
    return rows if len(wanted) == rows.num_rows else rows.take(pa.array(wanted, pa.int64()))
