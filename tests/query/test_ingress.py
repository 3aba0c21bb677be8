from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.journal.deadletters import DeadLetter, DeadLetterFile
from gateway.query.flow.ingress import RunLimits
from gateway.query.flow.memory import MemoryPool, MemoryShare
from gateway.query.flow.run import BATCH_RUNS_MAX, Run
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from infra.rows.base import SourceError
from tests.query.ingress_site import ROW_BYTES, SCHEMA, Site, Trickle, site, table_source
from tests.support.gateway_doubles import ManualClock
from tests.support.source_data import LinesSource
from tests.support.waiting import until

__all__ = ["site"]


async def test_without_a_schedule_a_run_is_cut_by_events(site: Site) -> None:
    async with site.started(table_source(25), limits=RunLimits(10, 1 << 30, 1.0)) as ingress:
        await until(lambda: ingress.finished)
    assert site.cut() == [(0, 9), (10, 19), (20, 24)]
    assert [row["n"] for run in site.runs for row in run.batch.to_pylist()] == [*range(25)]
    assert all(run.arrival_s == site.clock.now() for run in site.runs)


async def test_a_run_is_cut_by_bytes(site: Site) -> None:
    async with site.started(table_source(100), limits=RunLimits(1000, 20 * ROW_BYTES, 1.0)) as ingress:
        await until(lambda: ingress.finished)
    assert len(site.runs) >= 5
    assert all(run.raw_bytes <= 21 * ROW_BYTES for run in site.runs)
    assert site.cut()[-1][1] == 99


async def test_a_run_is_cut_when_its_first_event_has_lingered(site: Site) -> None:
    async with site.started(table_source(1000), limits=RunLimits(1000, 1 << 30, 0.5), rate=100.0):
        await until(lambda: site.clock.sleeper_count == 1)
        assert site.clock.next_wake_s == pytest.approx(1000.5)
        site.clock.advance(0.25)
        assert site.runs == []
        site.clock.advance(0.25)
        await until(lambda: len(site.runs) == 1)
        assert site.cut() == [(0, 50)]
        assert site.runs[0].arrival_s == pytest.approx(1000.25)


@pytest.mark.parametrize(("waiting_runs", "linger_s"), [(BATCH_RUNS_MAX, 0.5), (3 * BATCH_RUNS_MAX, 1.5), (10**6, 5.0)])
async def test_a_run_lingers_longer_while_more_wait_than_a_batch_takes(
    site: Site, waiting_runs: int, linger_s: float
) -> None:
    site.waiting_runs = waiting_runs
    async with site.started(table_source(1000), limits=RunLimits(1000, 1 << 30, 0.5), rate=100.0):
        await until(lambda: site.clock.sleeper_count == 1)
        assert site.clock.next_wake_s == pytest.approx(1000 + linger_s)


async def test_a_source_without_a_schedule_is_read_less_often_while_many_runs_wait(site: Site) -> None:
    site.waiting_runs = 2 * BATCH_RUNS_MAX
    source = Trickle(lambda: pa.table({"n": range(5), "at": [None] * 5}, schema=SCHEMA))
    source.open(SCHEMA)
    async with site.started(source, limits=RunLimits(2, 1 << 30, 0.5)):
        await until(lambda: len(site.runs) == 1 and site.clock.sleeper_count == 1)
        assert site.clock.next_wake_s == pytest.approx(1001.0)


async def test_a_run_is_cut_as_soon_as_it_is_full(site: Site) -> None:
    async with site.started(table_source(1000), limits=RunLimits(10, 1 << 30, 60.0), rate=100.0):
        await until(lambda: site.clock.sleeper_count == 1)
        assert site.clock.next_wake_s == pytest.approx(1000.09)
        site.clock.advance(0.09)
        await until(lambda: len(site.runs) == 1 and site.clock.sleeper_count == 1)
        assert site.clock.next_wake_s == pytest.approx(1000.19)
    assert site.cut() == [(0, 9)]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.floats(0.7, 5000), st.integers(1, 60), st.floats(0.001, 2), st.floats(0, 1e6))
def test_at_the_time_a_run_closes_it_can_be_read_whatever_the_rounding(
    tmp_path_factory: pytest.TempPathFactory, rate: float, max_events: int, linger_s: float, now_s: float
) -> None:
    async def play() -> None:
        site = Site(tmp_path_factory.mktemp("site"))
        site.clock = ManualClock(now_s)
        async with site.started(table_source(5), limits=RunLimits(max_events, 1 << 30, linger_s), rate=rate) as ingress:
            while not ingress.finished:
                await until(lambda: ingress.finished or site.clock.sleeper_count == 1)
                if site.clock.next_wake_s is not None:
                    site.clock.advance(site.clock.next_wake_s - site.clock.now())
        assert [seq for first, last in site.cut() for seq in range(first, last + 1)] == [0, 1, 2, 3, 4]
        assert all(run.arrival_s <= site.clock.now() for run in site.runs)

    asyncio.run(play())


async def test_times_between_events_are_those_of_the_schedule_however_they_are_read(site: Site) -> None:
    async with site.started(table_source(40), limits=RunLimits(10, 1 << 30, 0.1), rate=100.0) as ingress:
        await until(lambda: site.clock.sleeper_count == 1)
        site.clock.advance(5.0)
        await until(lambda: ingress.finished)
        gaps = ingress.gaps.take()
        assert gaps is not None
        assert gaps.count == 39, "also those between two runs"
        assert gaps.sample == pytest.approx([0.01] * 32, rel=1e-3)
        assert ingress.gaps.take() is None, "the next slot has its own"


async def test_back_pressure_cannot_hide_a_backlog(site: Site) -> None:
    site.memory = MemoryPool(20 * ROW_BYTES).share()
    async with site.started(table_source(1000), limits=RunLimits(10, 1 << 30, 0.1), rate=100.0) as ingress:
        await until(lambda: site.clock.sleeper_count == 1)
        assert ingress.oldest_unread_s() == 1000.0
        site.clock.advance(5.0)
        await until(lambda: len(site.runs) == 1)
        # The memory is in use: nothing more is read, but what is due is known, and how old it is.
        assert ingress.due_unread_count() == 501 - 10
        assert ingress.oldest_unread_s() == pytest.approx(1000.1)
        assert site.runs[0].arrival_s == pytest.approx(1000.045)
        site.clock.advance(2.0)
        assert ingress.due_unread_count() == 701 - 10
        site.memory.give(site.runs[0].raw_bytes)
        await until(lambda: len(site.runs) == 2)
        assert site.runs[1].arrival_s == pytest.approx(1000.145), "late reading does not make an event younger"


async def test_what_does_not_exist_is_never_due(site: Site) -> None:
    site.memory = MemoryPool(2).share()
    async with site.started(table_source(10), limits=RunLimits(10, 1 << 30, 0.1), rate=100.0) as ingress:
        await until(lambda: site.clock.sleeper_count == 1)
        site.clock.advance(60.0)
        await until(lambda: ingress.finished)
        assert (ingress.due_unread_count(), ingress.oldest_unread_s()) == (0, None)


async def test_the_memory_bounds_what_is_held(site: Site) -> None:
    site.memory = MemoryPool(70 * ROW_BYTES).share()
    async with site.started(table_source(500), limits=RunLimits(10, 1 << 30, 0.1)) as ingress:
        given = 0
        while not ingress.finished:
            await until(lambda: ingress.finished or site.memory.held_bytes >= 35 * ROW_BYTES)
            assert site.memory.held_bytes <= 45 * ROW_BYTES
            while given < len(site.runs):
                site.memory.give(site.runs[given].raw_bytes)
                given += 1
    assert site.cut()[-1][1] == 499
    assert site.memory.held_bytes == 0


async def test_a_run_is_logged_before_it_is_handed_over(site: Site) -> None:
    logged_at_hand_over: list[int] = []

    def handed_over(run: Run) -> None:
        text = (site.folder / "runs.log").read_bytes()
        logged_at_hand_over.append(text.count(b"\n") - 1)

    async with site.started(table_source(30), limits=RunLimits(10, 1 << 30, 0.1), on_run=handed_over) as ingress:
        await until(lambda: ingress.finished)
    assert logged_at_hand_over == [1, 2, 3]


async def test_cancelled_while_it_writes_it_ends_only_when_the_log_is_whole(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing, go_on = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()
    real: Callable[..., None] = RunLog.append

    def slow(self: RunLog, runs: Any) -> None:
        loop.call_soon_threadsafe(writing.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result()
        real(self, runs)

    monkeypatch.setattr(RunLog, "append", slow)
    source = table_source(10)
    async with AsyncExitStack() as stack:
        ingress = await stack.enter_async_context(site.started(source, run=False))
        task = asyncio.create_task(ingress.run())
        await writing.wait()
        task.cancel()
        await asyncio.to_thread(lambda: None)  # another thread's end is heard after the cancellation
        assert not task.done()
        go_on.set()
        await asyncio.wait([task])
        assert task.cancelled()
        assert [(run.first_seq, run.last_seq) for run in site.log.runs] == [(0, 9)]
        assert site.runs == []


LINES = [b'{"n": %d}' % i for i in range(10)]


def lines_source(path: Path, lines: list[bytes]) -> LinesSource:
    path.write_bytes(b"\n".join(lines) + b"\n")
    source = LinesSource(path)
    source.open(SCHEMA)
    return source


async def test_undecodable_records_become_dead_letters_and_seq_stays_dense(site: Site, tmp_path: Path) -> None:
    lines = [*LINES[:3], b"oops", b"\xff", *LINES[3:], b"null"]
    source = lines_source(tmp_path / "in.jsonl", lines)
    async with site.started(source, limits=RunLimits(2, 1 << 30, 0.1)) as ingress:
        await until(lambda: ingress.finished)
    assert [row["n"] for run in site.runs for row in run.batch.to_pylist()] == [*range(10)]
    assert [seq for first, last in site.cut() for seq in range(first, last + 1)] == [*range(10)]
    letters = [
        msgspec.json.decode(text, type=DeadLetter) for text in (tmp_path / "dead.jsonl").read_bytes().splitlines()
    ]
    assert [(letter.record, letter.offset, letter.kept()) for letter in letters] == [
        (3, 27, b"oops"),
        (4, 32, b"\xff"),
        (12, 34 + 7 * 9, b"null"),
    ]
    assert {letter.at for letter in letters} == {"2023-11-14T22:13:20.000Z"}
    assert site.dead_letters.count == 3


@pytest.mark.parametrize("kill_after", [0, 1, 3])
async def test_after_a_kill_the_same_runs_are_cut_and_it_goes_on(site: Site, tmp_path: Path, kill_after: int) -> None:
    lines = [*LINES[:3], b"oops", b"\xff", *LINES[3:], b"null"]
    limits = RunLimits(3, 1 << 30, 0.5)
    path = tmp_path / "in.jsonl"
    async with site.started(lines_source(path, lines), limits=limits, rate=100.0):
        await until(lambda: site.clock.sleeper_count == 1)
        while len(site.runs) < kill_after:
            await until(lambda: site.clock.sleeper_count == 1 or len(site.runs) >= kill_after)
            site.clock.advance(0.03)
    before, site.runs = site.runs, []
    site.clock.advance(100.0)  # downtime counts: the schedule went on
    done = IntervalSet([(run.first_seq, run.last_seq) for run in before[:1]])
    site.dead_letters = DeadLetterFile(tmp_path / "dead.jsonl")
    async with site.started(lines_source(path, lines), limits=limits, rate=100.0, done=done) as ingress:
        recovered = len(before) - len(done)
        for old, new in zip(before[1:], site.runs[:recovered], strict=False):
            assert (new.first_seq, new.last_seq) == (old.first_seq, old.last_seq)
            assert new.arrival_s == pytest.approx(old.arrival_s, abs=1e-3)
            assert new.batch.equals(old.batch)
        await until(lambda: ingress.finished)
    everything = {run.first_seq: run for run in [*before, *site.runs]}
    assert [row["n"] for _, run in sorted(everything.items()) for row in run.batch.to_pylist()] == [*range(10)]
    assert site.dead_letters.count == 3
    assert site.clock.now() - site.runs[-1].arrival_s > 99


async def test_recovery_says_when_the_source_no_longer_holds_what_it_held(site: Site, tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    async with site.started(lines_source(path, LINES), limits=RunLimits(5, 1 << 30, 0.1)) as ingress:
        await until(lambda: ingress.finished)
    with pytest.raises(SourceError, match="records 5 to 9 were taken from the source"):
        async with site.started(lines_source(path, LINES[:7])):
            pass


async def test_recovery_waits_for_room(site: Site) -> None:
    async with site.started(table_source(100), limits=RunLimits(10, 1 << 30, 0.1)) as ingress:
        await until(lambda: ingress.finished)
    before, site.runs = site.cut(), []
    site.memory = MemoryPool(40 * ROW_BYTES).share()

    async def give() -> None:
        for at in range(10):
            await until(lambda at=at: len(site.runs) > at)  # type: ignore[misc]
            assert site.memory.held_bytes <= 20 * ROW_BYTES
            site.memory.give(site.runs[at].raw_bytes)

    giving = asyncio.create_task(give())
    async with site.started(table_source(100)):
        await giving
    assert site.cut() == before


async def test_the_order_column_marks_runs_that_are_out_of_order(site: Site) -> None:
    times = [0, 1, 2, None, 4, 3, 5, 6, 7, 5, 8, 9, None, None, None, 10, 10, 11]
    source = table_source(len(times), times)
    async with site.started(source, limits=RunLimits(3, 1 << 30, 0.1), order_column="at") as ingress:
        await until(lambda: ingress.finished)
    #  [0,1,2] rises; [-,4,3] falls inside; [5,6,7] rises; [5,8,9] begins before 7; no times at all; [10,10,11] rises
    assert [run.disordered for run in site.runs] == [False, True, False, True, False, False]
    before = [run.disordered for run in site.runs]
    site.runs = []
    async with site.started(table_source(len(times), times), order_column="at"):
        assert [run.disordered for run in site.runs] == before


@pytest.mark.parametrize("closed", [False, True])
async def test_after_a_restart_the_newest_event_time_is_known(site: Site, closed: bool) -> None:
    times: list[int | None] = [0, 1, 9, 3, 4, 9, 10, 11]
    limits = RunLimits(3, 1 << 30, 0.1)
    async with site.started(table_source(3, times[:3]), limits=limits, order_column="at") as ingress:
        await until(lambda: ingress.finished)
        if closed:
            site.log.retire(3)
            site.log.close()
    done = IntervalSet([(0, 2)])
    async with site.started(table_source(8, times), limits=limits, order_column="at", done=done) as ingress:
        await until(lambda: ingress.finished)
    assert [(run.first_seq, run.disordered) for run in site.runs] == [(0, False), (3, True), (6, False)]


async def test_the_newest_time_of_another_column_says_nothing(site: Site) -> None:
    late = RunRecord(0, 2, Position(), Position(3, 0, 3), 1.0, newest=("other", 1 << 60))
    log = RunLog(site.folder / "runs.log", LogHead("me", site.clock.wall()))
    log.append([late])
    log.close()
    async with site.started(table_source(6), order_column="at", done=IntervalSet([(0, 2)])) as ingress:
        await until(lambda: ingress.finished)
    assert [(run.first_seq, run.disordered) for run in site.runs] == [(3, False)]


@pytest.mark.parametrize(("from_seq", "again"), [(None, []), (0, [0, 10, 20]), (10, [10, 20]), (30, [])])
async def test_a_stateful_query_gets_runs_again_although_their_results_are_in(
    site: Site, from_seq: int | None, again: list[int]
) -> None:
    async with site.started(table_source(30), limits=RunLimits(10, 1 << 30, 0.1)) as ingress:
        await until(lambda: ingress.finished)
    site.runs = []
    async with site.started(table_source(30), done=IntervalSet([(0, 29)]), run=False) as ingress:
        await ingress.recover(IntervalSet([(0, 29)]), from_seq)
    assert [run.first_seq for run in site.runs] == again


class WatchedShare(MemoryShare):
    """Reports whether somebody waits for room."""

    waits = False

    async def wait(self) -> None:
        self.waits = True
        await super().wait()
        self.waits = False


async def test_runs_of_a_micro_batch_that_runs_again_are_held_all_at_once(site: Site) -> None:
    async with site.started(table_source(30), limits=RunLimits(10, 1 << 30, 0.1)) as ingress:
        await until(lambda: ingress.finished)
    everything = IntervalSet([(0, 29)])
    site.memory = memory = WatchedShare(MemoryPool(0))
    site.runs = []
    async with site.started(table_source(30), done=everything, run=False) as ingress:
        recovery = asyncio.create_task(ingress.recover(everything, 0, 20))
        await until(lambda: memory.waits)
        assert site.cut() == [(0, 9), (10, 19)], "what comes after the batch waits for room"
        recovery.cancel()
        await asyncio.gather(recovery, return_exceptions=True)
