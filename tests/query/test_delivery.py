from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.connectors.position import Position
from gateway.core.exchange.instructions import Release
from gateway.journal.deadletters import DeadLetter, DeadLetterFile
from gateway.query.flow.delivery import PACE, PART_BYTES, Delivery, Pace, Results, pace_of
from gateway.sinks.parts.filesink import FileSink
from tests.support.file_parts import parts
from tests.support.gateway_doubles import ManualClock, opened, results
from tests.support.waiting import until


class Desk:
    """A delivery with its sink on disk."""

    def __init__(self, folder: Path, *, ordered: bool = True, part_bytes: int = PART_BYTES, pace: Pace = PACE) -> None:
        self.folder = folder / "out"
        self.clock = ManualClock()
        self.sink = FileSink(self.folder, owner="me", format="jsonl", ordered=ordered)
        self.letters = DeadLetterFile(folder / "dead.jsonl")
        self.committed: list[tuple[int, int]] = []
        self.commits = self.ticks = 0
        self._taken: list[tuple[int, int]] = []
        self.delivery = Delivery(
            opened(self.sink),
            self.letters,
            self.clock,
            position_after=lambda committed: Position(committed.watermark()),
            on_tick=self._tick,
            on_commit=self._committed,
            part_bytes=part_bytes,
            pace=pace,
        )

    def _tick(self) -> None:
        self.ticks += 1

    async def _committed(self, ranges: tuple[tuple[int, int], ...]) -> None:
        self.commits += 1
        self.committed += ranges

    @property
    def empty(self) -> bool:
        """Whether the exchange was notified that all was committed."""
        return sorted(self.committed) == sorted(self._taken)

    def release(self, first: int, last: int, letters: tuple[DeadLetter, ...] = (), *, late: bool = False) -> None:
        self._taken.append((first, last))
        batch = results(range(first, last + 1), "home")
        self.delivery.take(Release(first, last, Results(batch, letters), last - first + 1, 0.0, late))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.create_task(self.delivery.run())
        try:
            yield task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def pass_time(self, seconds: float) -> None:
        """Let the delivery tick for this much time."""
        end_s = self.clock.now() + seconds
        await until(lambda: self.clock.now() >= end_s, self.clock, 0.1)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_part_a_second_not_one_a_run(desk: Desk) -> None:
    async with desk.running():
        for second in range(3):
            for run in range(5):
                first = 50 * second + 10 * run
                desk.release(first, first + 9)
            await until(lambda second=second: desk.commits == second + 1, desk.clock, 0.1)  # type: ignore[misc]
    assert parts(desk.folder) == [
        "0000000000-000000000000-000000000049.jsonl",
        "0000000001-000000000050-000000000099.jsonl",
        "0000000002-000000000100-000000000149.jsonl",
    ]
    assert desk.empty


async def test_a_sink_of_messages_gets_results_at_once(tmp_path: Path) -> None:
    desk = Desk(tmp_path, pace=pace_of("kafka", PACE, divided=False))
    async with desk.running():
        await until(lambda: desk.clock.sleeper_count == 1)
        desk.clock.advance(0.1)
        await until(lambda: desk.ticks == 1)
        for commit in range(3):
            desk.release(10 * commit, 10 * commit + 9)
            await until(lambda commit=commit: desk.commits == commit + 1)  # type: ignore[misc]
            desk.clock.advance(0.02)
    assert desk.empty


def test_a_sink_of_messages_is_written_a_fifth_of_the_time_at_most_and_files_are_written_once_a_second() -> None:
    messages = pace_of("mqtt", PACE, divided=False)
    assert messages.due_s(10.0, 10.001) == pytest.approx(10.021)
    assert messages.due_s(10.0, 10.1) == pytest.approx(10.5)
    assert messages.due_s(10.0, 60.0) == 61.0
    assert pace_of("file", PACE, divided=False).due_s(10.0, 10.1) == pytest.approx(11.1)
    assert pace_of("s3", PACE, divided=True).due_s(10.0, 10.1) == 10.1


async def test_a_large_part_does_not_wait_for_its_second(tmp_path: Path) -> None:
    assert PART_BYTES == 64_000_000
    desk = Desk(tmp_path, part_bytes=100)
    async with desk.running():
        await until(lambda: desk.clock.sleeper_count == 1)
        desk.release(0, 99)
        desk.clock.advance(0.1)
        await until(lambda: desk.commits == 1)


async def test_it_is_not_empty_before_what_was_released_is_on_the_disk(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, writing, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    hold_up(monkeypatch, loop, writing, go_on)
    async with desk.running():
        desk.release(0, 9)
        await until(writing.is_set, desk.clock, 0.1)
        assert not desk.empty
        go_on.set()
        await until(lambda: desk.empty)
        assert len(parts(desk.folder)) == 1


def hold_up(
    monkeypatch: pytest.MonkeyPatch, loop: asyncio.AbstractEventLoop, writing: asyncio.Event, go_on: asyncio.Event
) -> None:
    """Make a commit wait between its manifest and its name until ``go_on``."""
    real: Callable[..., Any] = Path.rename

    def rename(self: Path, target: Path) -> Any:
        loop.call_soon_threadsafe(writing.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        return real(self, target)

    monkeypatch.setattr(Path, "rename", rename)


async def test_cancelled_in_a_commit_and_closed_it_doubles_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    loop, writing, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    hold_up(monkeypatch, loop, writing, go_on)
    async with desk.running() as task:
        desk.release(0, 9)
        await until(writing.is_set, desk.clock, 0.1)
        desk.release(10, 19)
        task.cancel()
        await asyncio.to_thread(lambda: None)  # another thread's end is heard after the cancellation
        assert not task.done(), "the thread still writes"
        go_on.set()
        await asyncio.wait([task])
        await desk.delivery.close()
    again = FileSink(desk.folder, owner="me", format="jsonl", ordered=True)
    assert list(again.committed) == [(0, 19)]
    assert [(int(name[11:23]), int(name[24:36])) for name in parts(desk.folder)] == [(0, 9), (10, 19)]


async def test_a_full_disk_is_tried_again_and_seen_meanwhile(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fails = 0

    def full(_: int) -> None:
        nonlocal fails
        fails += 1
        raise OSError(28, "No space left on device")

    async with desk.running():
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", full)
            desk.release(0, 9, (DeadLetter("boom", "{}", seq=3),))
            await until(lambda: fails >= 4, desk.clock, 0.1)
            assert desk.delivery.trouble
            assert not desk.empty
            assert parts(desk.folder) == []
            desk.release(10, 19)
        await until(lambda: desk.empty, desk.clock, 0.1)
    assert not desk.delivery.trouble
    assert list(desk.sink.committed) == [(0, 19)]
    assert desk.letters.count == 1
    assert len([record for record in caplog.records if "the dead-letter file does not work" in record.message]) == 1


async def test_closed_on_a_full_disk_it_ends_and_says_so(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    desk.release(0, 9)
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        await asyncio.wait_for(desk.delivery.close(), 10)
    assert "after the next start" in caplog.text
    assert list(FileSink(desk.folder, owner="me", format="jsonl", ordered=True).committed) == []


async def test_letters_are_on_the_disk_before_their_run_is_committed(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    real = FileSink.commit

    def commit(self: FileSink, releases: Any, source: Position) -> None:
        seen.append(DeadLetterFile(tmp_path / "dead.jsonl").count)
        real(self, releases, source)

    monkeypatch.setattr(FileSink, "commit", commit)
    async with desk.running():
        desk.release(0, 9, (DeadLetter("boom", "{}", seq=3), DeadLetter("boom", "{}", seq=4)))
        await until(lambda: desk.commits == 1, desk.clock, 0.1)
    assert seen == [2]


async def test_close_commits_what_was_released(desk: Desk) -> None:
    desk.release(0, 9)
    await desk.delivery.close()
    assert list(FileSink(desk.folder, owner="me", format="jsonl", ordered=True).committed) == [(0, 9)]


async def test_cancelled_while_the_disk_is_full_it_still_gives_its_results_when_closed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    async with desk.running() as task:
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", full)
            desk.release(0, 9)
            await until(lambda: desk.delivery.trouble != "", desk.clock, 0.1)
            desk.release(10, 19)
            task.cancel()
            await asyncio.wait([task])
        await desk.delivery.close()
    assert list(FileSink(desk.folder, owner="me", format="jsonl", ordered=True).committed) == [(0, 19)]


async def test_a_late_result_has_a_part_of_its_own_and_says_so(desk: Desk) -> None:
    async with desk.running():
        desk.release(10, 19)
        await until(lambda: desk.commits == 1, desk.clock, 0.1)
        desk.release(0, 9, late=True)
        await until(lambda: desk.commits == 2, desk.clock, 0.1)
    assert parts(desk.folder)[1] == "0000000001-000000000000-000000000009.late.jsonl"
    assert desk.ticks > 10
