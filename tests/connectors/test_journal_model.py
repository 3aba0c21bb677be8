"""The journal is compared with a list: both agree whatever is appended, refused, released, killed or failed."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.connectors.position import Position
from gateway.journal.journal import Journal, JournalFullError
from tests.connectors.journal_data import HUGE, SetClock, everything

LIMIT_BYTES = 3000
SEGMENT_BYTES = 400
KEEP_S = 50.0
STEP = st.one_of(
    st.tuples(st.just("append"), st.lists(st.lists(st.binary(max_size=60), min_size=1, max_size=4), max_size=5)),
    st.tuples(st.just("fail"), st.sampled_from(["write", "fsync", "fsync ftruncate"])),
    st.tuples(st.just("release"), st.floats(0, 1)),
    st.tuples(st.just("read"), st.floats(0, 1)),
    st.tuples(st.just("close"), st.none()),
    st.tuples(st.just("kill"), st.binary(max_size=30)),
    st.tuples(st.just("pass"), st.floats(0, 30)),
)


class Pair:
    """A journal and the list that it should equal.

    Attributes:
        records: all records that were ever accepted.
        released: how many of them were released.
        keys: when each key was accepted, in seconds since 1970.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = SetClock()
        self.records: list[bytes] = []
        self.released = 0
        self.keys: dict[str, float] = {}
        self.number = 0

    async def open(self) -> None:
        self.journal = Journal(
            self.folder,
            limit_bytes=LIMIT_BYTES,
            segment_bytes=SEGMENT_BYTES,
            clock=self.clock,
            remember_keys_s=KEEP_S,
        )
        await self.journal.open()

    async def append(self, groups: list[list[bytes]]) -> None:
        self.number += 1
        keys = [f"{self.number}-{i}" for i in range(len(groups))]
        work = [self.journal.append(group, key=key) for group, key in zip(groups, keys, strict=True)]
        for group, key, result in zip(groups, keys, await asyncio.gather(*work, return_exceptions=True), strict=True):
            if result is None:
                self.records += group
                self.keys[key] = self.clock.wall_s
            else:
                assert isinstance(result, JournalFullError)

    async def fail(self, names: str) -> None:
        def broken(*_: object) -> int:
            raise OSError(errno.EIO, "Input/output error")

        with pytest.MonkeyPatch.context() as patch:
            for name in names.split():
                patch.setattr(os, name, broken)
            with pytest.raises((OSError, JournalFullError)):
                await self.journal.append([b"lost"], key="lost")
        assert self.journal.seen("lost") is None

    async def release(self, part: float) -> None:
        self.released += int(part * (len(self.records) - self.released))
        await self.journal.release(Position(self.released))

    async def read(self, part: float) -> None:
        first = self.released + int(part * (len(self.records) - self.released))
        found = await self.journal.read(Position(first), 5, HUGE)
        assert (found.records if found is not None else []) == self.records[first : first + 5]
        if found is not None:
            assert found.end.record == first + len(found.records)
            assert await everything(self.journal, found.end) == self.records[found.end.record :]

    async def reopen(self) -> None:
        await self.journal.close()
        await self.open()

    async def kill(self, torn: bytes) -> None:
        """As after a kill in the middle of a write; everything that is closed here has nothing left to write."""
        await self.journal.close()
        last = max(self.folder.glob("*.journal"))
        with last.open("ab") as file:
            file.write(torn)
        await self.open()

    async def check(self) -> None:
        assert self.journal.next_record == len(self.records)
        assert self.journal.first_record <= self.released
        assert await everything(self.journal, Position(self.released)) == self.records[self.released :]
        for key, taken_s in self.keys.items():
            assert (self.journal.seen(key) is not None) == (self.clock.wall_s - taken_s < KEEP_S)
        files = [path.stat().st_size for path in self.folder.glob("*.journal")]
        assert sum(files) < LIMIT_BYTES + 1000


async def play(folder: Path, steps: list[tuple[str, object]]) -> None:
    pair = Pair(folder)
    await pair.open()
    doings = {
        "append": pair.append,
        "fail": pair.fail,
        "release": pair.release,
        "read": pair.read,
        "close": lambda _: pair.reopen(),
        "kill": pair.kill,
    }
    try:
        for what, how in steps:
            if what == "pass":
                assert isinstance(how, float)
                pair.clock.wall_s += how
            else:
                await doings[what](how)  # type: ignore[operator]
            await pair.check()
    finally:
        await pair.journal.close()


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=25))
def test_the_journal_is_the_list(steps: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        asyncio.run(play(Path(name), steps))
