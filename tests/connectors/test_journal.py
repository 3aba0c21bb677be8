"""The journal as its users see it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from gateway.connectors.position import Position
from gateway.journal.journal import Journal, JournalFullError
from infra.clock import SystemClock
from infra.statefiles import StateError
from tests.connectors.journal_data import HUGE, SetClock, everything, opened


def has_room(journal: Journal) -> bool:
    return not journal.full


async def test_what_was_appended_is_read_in_order_now_and_after_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path / "made" / "journal") as journal:
        await journal.append([b"a", b"", b"c"])
        await journal.append([b"d"])
        assert journal.next_record == 4
        assert await everything(journal) == [b"a", b"", b"c", b"d"]
    async with opened(tmp_path / "made" / "journal") as journal:
        assert journal.next_record == 4
        assert await everything(journal, at_once=1) == [b"a", b"", b"c", b"d"]
        await journal.append([b"e"])
        assert await everything(journal, Position(3)) == [b"d", b"e"]


async def test_a_read_says_where_when_and_about_what(tmp_path: Path) -> None:
    clock = SetClock(1000.0)
    async with opened(tmp_path, clock=clock) as journal:
        await journal.append([b"a", b"b"], topics=["x", "y"])
        clock.wall_s = 1006.0
        await journal.append([b"c"], topics=["z"])
        records = await journal.read(Position(), 10, HUGE)
        assert records is not None
        assert (records.start, records.end.record) == (Position(), 3)
        assert records.topics == ["x", "y", "z"]
        assert records.walls_s.mean() == 1002.0
        assert records.offsets[0] == records.offsets[1] < records.offsets[2] < records.end.offset
        assert [journal.received_wall_s(n) for n in range(4)] == [1000.0, 1000.0, 1006.0, None]
        assert await journal.read(records.end, 10, HUGE) is None


async def test_a_position_in_the_middle_of_a_frame_is_found_by_its_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        for first in range(0, 40, 10):
            await journal.append([b"%d" % n for n in range(first, first + 10)])
        begun = await journal.read(Position(), 13, HUGE)
        assert begun is not None
        assert begun.end.record == 13
        rest = [b"%d" % n for n in range(13, 40)]
        assert await everything(journal, begun.end) == rest
        assert await everything(journal, Position(13)) == rest
        assert await everything(journal, Position(13, part=77, offset=5)) == rest
        assert await everything(journal, Position(5)) == [b"%d" % n for n in range(5, 40)]


async def test_few_bytes_still_give_a_record(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"x" * 10] * 5)
        counts = []
        for max_bytes in (0, 1, 10, 11, 49):
            records = await journal.read(Position(), 100, max(1, max_bytes))
            assert records is not None
            counts.append(len(records.records))
        assert counts == [1, 1, 1, 2, 5]


async def test_many_appends_at_once_share_their_syncs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = 0
    real = os.fsync

    def fsync(handle: int) -> None:
        nonlocal syncs
        syncs += 1
        real(handle)

    async with opened(tmp_path) as journal:
        monkeypatch.setattr(os, "fsync", fsync)
        await asyncio.gather(*(journal.append([b"%d" % n]) for n in range(200)))
        assert syncs <= 2
        assert await everything(journal) == [b"%d" % n for n in range(200)]


async def test_released_segments_go_and_the_rest_stays(tmp_path: Path) -> None:
    async with opened(tmp_path, segment_bytes=2000) as journal:
        for n in range(50):
            await journal.append([b"%03d" % n * 100])
        files = len(list(tmp_path.glob("*.journal")))
        assert files >= 5
        await journal.release(Position(20))
        assert 0 < journal.first_record <= 20
        assert len(list(tmp_path.glob("*.journal"))) < files
        assert (await everything(journal, Position(20)))[0] == b"020" * 100
        with pytest.raises(StateError, match=r"record 0 is not there any more"):
            await journal.read(Position(), 1, 1)
        await journal.release(Position(50))
        assert len(list(tmp_path.glob("*.journal"))) == 1
    async with opened(tmp_path) as journal:
        assert journal.next_record == 50


async def test_a_full_journal_takes_nothing_until_some_is_released(tmp_path: Path) -> None:
    limit_bytes = 20_000
    async with opened(tmp_path, limit_bytes=limit_bytes) as journal:
        taken = 0
        while has_room(journal):
            await journal.append([b"x" * 500])
            taken += 1
        with pytest.raises(JournalFullError):
            await journal.append([b"x" * 500])
        assert limit_bytes <= sum(path.stat().st_size for path in tmp_path.iterdir()) < limit_bytes + 1000
        assert journal.next_record == taken
        await journal.release(Position(taken // 2))
        assert has_room(journal)
        await journal.append([b"y"])
        assert (await everything(journal, Position(taken)))[0] == b"y"


async def test_one_segment_that_fills_the_journal_goes_once_all_in_it_is_released(tmp_path: Path) -> None:
    async with opened(tmp_path, limit_bytes=4000) as journal:
        await journal.append([b"x" * 5000])
        with pytest.raises(JournalFullError):
            await journal.append([b"y"])
        await journal.release(Position(1))
        await journal.append([b"y"])
        assert await everything(journal, Position(1)) == [b"y"]


async def test_a_position_that_is_not_there_yet_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"a"])
        with pytest.raises(StateError, match=r"restore the folder"):
            await journal.read(Position(2), 1, 1)


async def test_a_closed_journal_takes_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"a"])
    with pytest.raises(OSError, match="closed"):
        await journal.append([b"b"])
    never_opened = Journal(tmp_path / "other", limit_bytes=1000, segment_bytes=1000, clock=SystemClock())
    with pytest.raises(OSError, match="closed"):
        await never_opened.append([b"b"])


async def test_closing_waits_for_what_is_on_its_way(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        appends = [asyncio.create_task(journal.append([b"%d" % n])) for n in range(20)]
        await asyncio.sleep(0)
    await asyncio.gather(*appends)
    async with opened(tmp_path) as journal:
        assert journal.next_record == 20


async def test_a_cancelled_append_does_not_harm_the_others(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        appends = [asyncio.create_task(journal.append([b"%d" % n])) for n in range(10)]
        await asyncio.sleep(0)
        appends[3].cancel()
        await asyncio.gather(*appends, return_exceptions=True)
        assert set(await everything(journal)) >= {b"%d" % n for n in range(10) if n != 3}


async def test_an_append_of_nothing_is_nothing(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([])
        assert journal.next_record == 0
