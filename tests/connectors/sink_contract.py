"""The contract of all sinks.

A connector's test module subclasses ``SinkContract`` and provides the fixture ``subject``.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa
import pytest

from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import FencedError, ReleasedRows, Sink
from infra.statefiles import StateError

RESULT = pa.schema([("id", pa.int64()), ("text", pa.string()), ("tags", pa.list_(pa.string()))])
SEED = 20261121


class SinkSubject(Protocol):
    """A place that a sink writes, controlled by the test.

    Attributes:
        exactly_once: no result is there twice, even if the writer is killed; otherwise no result is missing.
        fences: an older writer is refused once a newer one has opened the place.
    """

    exactly_once: bool
    fences: bool

    def make(self, *, owner: str = "me", epoch: int = 1) -> Sink:
        """Return a new sink for the same place and state, not opened; the one before was closed or killed."""
        ...

    async def rows(self) -> list[dict[str, Any]]:
        """Return what an independent reader sees, in the order of release."""
        ...


def row(seq: int) -> dict[str, Any]:
    """The result of an event; every seventh has text that is hard to encode."""
    text = f'line\n\u2028 "{seq}" \u00e9\U0001f600' if seq % 7 == 0 else None if seq % 5 == 0 else f"text {seq}"
    return {"id": seq, "text": text, "tags": [f"t{seq % 3}"] * (seq % 3)}


def release(first: int, last: int, *, late: bool = False, keep: int = 1) -> ReleasedRows:
    """Results of the events of a run; only every ``keep``-th event has one."""
    batch = pa.RecordBatch.from_pylist([row(n) for n in range(first, last + 1) if n % keep == 0], schema=RESULT)
    return Released(first, last, batch, late)


def at(seq: int) -> Position:
    """The source position after event ``seq``, if each record is one event."""
    return Position(seq + 1)


async def opened(subject: SinkSubject, *, owner: str = "me", epoch: int = 1) -> Sink:
    """An opened sink."""
    sink = subject.make(owner=owner, epoch=epoch)
    await sink.open()
    return sink


class SinkContract:
    """The suite."""

    async def test_what_is_committed_is_there_in_order(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        assert list(sink.committed) == []
        await sink.commit([release(0, 4), release(5, 9)], at(9))
        assert list(sink.committed) == [(0, 9)]
        assert await subject.rows() == [row(n) for n in range(10)]
        await sink.commit([release(10, 12)], at(12))
        assert await subject.rows() == [row(n) for n in range(13)]
        await sink.close()

    async def test_given_again_it_is_passed_over(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        await sink.commit([release(0, 4)], at(4))
        await sink.commit([release(0, 4), release(5, 9)], at(9))
        await sink.commit([release(5, 9)], at(9))
        assert await subject.rows() == [row(n) for n in range(10)]
        await sink.close()

    async def test_a_gap_is_remembered_and_filled_late(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        await sink.commit([release(0, 4), release(10, 14)], at(4))
        assert list(sink.committed) == [(0, 4), (10, 14)]
        await sink.close()
        again = await opened(subject, epoch=2)
        assert list(again.committed) == [(0, 4), (10, 14)]
        await again.commit([release(5, 9, late=True)], at(14))
        assert list(again.committed) == [(0, 14)]
        order = [*range(5), *range(10, 15), *range(5, 10)]
        assert await subject.rows() == [row(n) for n in order]
        await again.close()

    async def test_runs_without_results_count_too(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        await sink.commit([release(1, 4, keep=100)], at(4))
        await sink.commit([release(5, 9, keep=100), release(10, 11)], at(11))
        await sink.close()
        again = await opened(subject, epoch=2)
        assert list(again.committed) == [(1, 11)]
        assert await subject.rows() == [row(10), row(11)]
        await again.close()

    async def test_closed_or_killed_and_opened_it_goes_on(self, subject: SinkSubject) -> None:
        """A writer that is never closed is equivalent to a killed one: the next writer finds what it committed."""
        for epoch in range(1, 5):
            sink = await opened(subject, epoch=epoch)
            first = 10 * (epoch - 1)
            assert list(sink.committed) == ([(0, first - 1)] if first else [])
            await sink.commit([release(first, first + 9)], at(first + 9))
            if epoch % 2:
                await sink.close()
        assert await subject.rows() == [row(n) for n in range(40)]

    async def test_any_cut_into_commits_gives_the_same(self, subject: SinkSubject) -> None:
        print(f"seed {SEED}")
        chance = random.Random(SEED)
        runs = [release(first, first + 3) for first in range(0, 120, 4)]
        sink, epoch, next_run = await opened(subject), 1, 0
        while next_run < len(runs):
            count = chance.randint(1, 5)
            back = chance.randint(0, min(2, next_run))
            given = runs[next_run - back : next_run + count]
            await sink.commit(given, at(given[-1].last_seq))
            next_run = min(len(runs), next_run + count)
            if chance.random() < 0.2:
                await sink.close()
                epoch += 1
                sink = await opened(subject, epoch=epoch)
        assert list(sink.committed) == [(0, 119)]
        assert await subject.rows() == [row(n) for n in range(120)]
        await sink.close()

    async def test_a_cancelled_commit_may_be_given_again(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        await sink.commit([release(0, 4)], at(4))
        for _ in range(3):
            writing = asyncio.create_task(sink.commit([release(5, 9)], at(9)))
            await asyncio.sleep(0.005)  # no wait for a state: the cancellation shall meet it in its midst
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
        await sink.commit([release(5, 9), release(10, 14)], at(14))
        assert list(sink.committed) == [(0, 14)]
        self._same(subject, await subject.rows(), range(15))
        await sink.close()

    async def test_results_of_other_state_are_left_alone(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        await sink.commit([release(0, 4)], at(4))
        await sink.close()
        with pytest.raises(StateError):
            await opened(subject, owner="somebody else", epoch=1)
        assert await subject.rows() == [row(n) for n in range(5)]

    async def test_an_older_writer_is_fenced(self, subject: SinkSubject) -> None:
        if not subject.fences:
            return  # the lock on the state_dir keeps an older writer away
        old = await opened(subject, epoch=1)
        await old.commit([release(0, 4)], at(4))
        new = await opened(subject, epoch=2)
        await new.commit([release(5, 9)], at(9))
        with pytest.raises(FencedError):
            await old.commit([release(5, 9), release(10, 14)], at(14))
        await new.commit([release(10, 14)], at(14))
        assert await subject.rows() == [row(n) for n in range(15)]
        assert new.committed == IntervalSet([(0, 14)])
        await old.close()
        await new.close()

    async def test_many_rows_in_one_commit(self, subject: SinkSubject) -> None:
        sink = await opened(subject)
        await sink.commit([release(first, first + 999) for first in range(0, 5000, 1000)], at(4999))
        assert await subject.rows() == [row(n) for n in range(5000)]
        await sink.close()

    def _same(self, subject: SinkSubject, found: list[dict[str, Any]], seqs: Sequence[int]) -> None:
        """Check the place after a commit whose outcome is unknown."""
        if subject.exactly_once:
            assert found == [row(n) for n in seqs]
        else:
            assert {item["id"] for item in found} == set(seqs)
