"""The journal with a full or failing disk, or a killed process: what was answered is there, and nothing else."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.connectors.position import Position
from infra import failpoints
from tests.connectors.journal_data import everything, opened
from tests.support.waiting import until

DEADLINE_S = 60.0
SEED = 20261121


class Fault:
    """Fails the ``at``-th of the watched calls, and the ``lasting`` - 1 calls after it."""

    def __init__(self, at: int, *, lasting: int = 1, after: bool = False) -> None:
        self.at, self.lasting, self.after = at, lasting, after
        self.count = 0
        self.hit = False

    def call(self, real: Callable[..., object], *args: object) -> object:
        self.count += 1
        fails = self.at <= self.count < self.at + self.lasting
        self.hit = self.hit or fails
        if fails and not self.after:
            raise OSError(errno.ENOSPC, "No space left on device")
        result = real(*args)
        if fails:
            raise OSError(errno.EIO, "Input/output error")
        return result


@contextmanager
def failing(fault: Fault, names: tuple[str, ...]) -> Iterator[None]:
    """Send system calls of these names through ``fault``."""
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            real = getattr(os, name)
            patch.setattr(os, name, lambda *args, real=real: fault.call(real, *args))
        yield


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("lasting", [1, 4])
async def test_a_failed_append_is_never_seen_and_the_journal_goes_on(tmp_path: Path, after: bool, lasting: int) -> None:
    for at in range(1, 100):
        folder = tmp_path / str(at)
        fault = Fault(at, lasting=lasting, after=after)
        taken: list[bytes] = []
        async with opened(folder, segment_bytes=500) as journal:
            with failing(fault, ("write", "fsync", "ftruncate")):
                for n in range(8):
                    try:
                        await journal.append([b"%d" % n * 100])
                    except OSError:
                        continue
                    taken.append(b"%d" % n * 100)
            assert await everything(journal) == taken
            await journal.append([b"more"])
            assert await everything(journal) == [*taken, b"more"]
        async with opened(folder) as journal:
            assert await everything(journal) == [*taken, b"more"]
        if not fault.hit:
            return
    pytest.fail("the faults never ended")


async def test_what_a_killed_process_did_not_sync_is_synced_before_it_is_read(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"a"])
    with failing(Fault(1), ("fsync",)), pytest.raises(OSError, match="No space"):
        async with opened(tmp_path):
            pytest.fail("it was opened")
    async with opened(tmp_path) as journal:
        assert await everything(journal) == [b"a"]


async def test_after_a_failed_sync_the_file_is_not_written_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as journal:
        await journal.append([b"a"])
        with failing(Fault(1), ("fsync",)), pytest.raises(OSError, match="No space"):
            await journal.append([b"b"])
        (first,) = tmp_path.glob("*.journal")
        size = first.stat().st_size
        await journal.append([b"c"])
        assert first.stat().st_size == size
        assert len(list(tmp_path.glob("*.journal"))) == 2
        assert await everything(journal) == [b"a", b"c"]


async def test_a_write_that_was_cut_short_by_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    real = os.write
    room = 10

    def write(handle: int, data: bytes) -> int:
        nonlocal room
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        count = real(handle, data[:room])
        room -= count
        return count

    async with opened(tmp_path) as journal:
        await journal.append([b"a"])
        (path,) = tmp_path.glob("*.journal")
        size = path.stat().st_size
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "write", write)
            with pytest.raises(OSError, match="No space"):
                await journal.append([b"b" * 100])
        assert path.stat().st_size == size
        assert "No space" in journal.trouble


async def test_trouble_ends_by_itself_once_the_disk_works(tmp_path: Path) -> None:
    async with opened(tmp_path, probe_s=0.02) as journal:
        assert journal.trouble == ""
        fault = Fault(1, lasting=10**9)
        with failing(fault, ("fsync",)):
            with pytest.raises(OSError, match="No space"):
                await journal.append([b"a"])
            assert "No space" in journal.trouble
            tried = fault.count
            await until(lambda: fault.count > tried + 3, what="the disk is tried again and again")
            assert "No space" in journal.trouble
        await until(lambda: not journal.trouble)
        # Trying did not leave a file for each try.
        assert len(list(tmp_path.glob("*.journal"))) == 1
        await journal.append([b"b"])
        assert await everything(journal) == [b"b"]


async def test_a_full_disk_stays_trouble_until_there_is_room_for_what_did_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, looks = 50, 0
    usage = shutil.disk_usage(tmp_path)

    def disk_usage(_: Path) -> object:
        nonlocal looks
        looks += 1
        return usage._replace(free=free)

    async with opened(tmp_path, probe_s=0.02) as journal:
        with failing(Fault(1), ("write",)), pytest.raises(OSError, match="No space"):
            await journal.append([b"a" * 1000])
        monkeypatch.setattr(shutil, "disk_usage", disk_usage)
        await until(lambda: looks > 3, what="the room is looked at again and again")
        assert journal.trouble
        free = 5000
        await until(lambda: not journal.trouble)


@pytest.mark.parametrize("name", ["before", "written", "after"])
async def test_a_disk_that_fails_at_a_failpoint(tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as journal:
        with failpoints.installed(f"journal.append.{name}=eio@2-3"):
            await journal.append([b"a"])
            for _ in range(2):
                with pytest.raises(OSError, match=r"failpoint journal\.append"):
                    await journal.append([b"lost"])
            await journal.append([b"b"])
        assert await everything(journal) == [b"a", b"b"]
    async with opened(tmp_path) as journal:
        assert await everything(journal) == [b"a", b"b"]


@pytest.mark.parametrize("name", ["before", "after"])
async def test_a_disk_that_fails_when_files_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with opened(tmp_path, segment_bytes=200) as journal:
        for n in range(10):
            await journal.append([b"%d" % n * 200])
        failing_once = failpoints.installed(f"journal.unlink.{name}=eio@2-2")
        with failing_once, pytest.raises(OSError, match=r"failpoint journal\.unlink"):
            await journal.release(Position(6))
        assert await everything(journal, Position(6)) == [b"%d" % n * 200 for n in range(6, 10)]
        await journal.release(Position(6))
        assert journal.first_record == 6
    async with opened(tmp_path) as journal:
        assert await everything(journal, Position(6)) == [b"%d" % n * 200 for n in range(6, 10)]


def start(folder: Path, rule: str) -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("journal_process.py")
    environment = {**os.environ, "SPILLWAY_FAILPOINTS": rule}
    return subprocess.Popen([sys.executable, "-W", "error", str(script), str(folder)], env=environment)


def answered(folder: Path) -> list[int]:
    """The numbers of the appends that were answered; a torn last line is left out."""
    path = folder / "answered"
    return [int(line) for line in path.read_bytes().split(b"\n")[:-1]] if path.exists() else []


RULES = [
    f"journal.{place}=kill@{time_}"
    for place in ("append.before", "append.written", "append.after", "unlink.before", "unlink.after")
    for time_ in (1, 4)
]


def test_killed_at_every_place_what_was_answered_is_there_once_and_in_order(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    for rule in [*RULES, "", ""]:
        process = start(tmp_path, rule)
        give_up_s = time.monotonic() + DEADLINE_S
        enough = len(answered(tmp_path)) + chance.randint(20, 60)
        while process.poll() is None and (rule or len(answered(tmp_path)) < enough):
            assert time.monotonic() < give_up_s
            time.sleep(0.002)
        process.kill()
        assert process.wait(DEADLINE_S) == -9, rule
    script = Path(__file__).with_name("journal_process.py")
    subprocess.run([sys.executable, "-W", "error", str(script), str(tmp_path), "check"], check=True, timeout=DEADLINE_S)
    assert len(answered(tmp_path)) > 40
