"""Idempotency keys are remembered for their time, across restarts, and after their records were removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.connectors.position import Position
from gateway.journal.keys import SeenKey, SeenKeys
from infra.statefiles import StateError
from tests.connectors.journal_data import SetClock, opened

KEEP_S = 100.0


async def test_a_key_is_remembered_with_what_came_with_it(tmp_path: Path) -> None:
    clock = SetClock(1000.0)
    async with opened(tmp_path, clock=clock, remember_keys_s=KEEP_S) as journal:
        await journal.append([b"a", b"b"], key="k", digest=b"d")
        assert journal.seen("k") == SeenKey("k", b"d", 2, 1000.0)
        assert journal.seen("other") is None
    async with opened(tmp_path, clock=clock, remember_keys_s=KEEP_S) as journal:
        assert journal.seen("k") == SeenKey("k", b"d", 2, 1000.0)
        clock.wall_s = 1099.9
        assert journal.seen("k") is not None
        clock.wall_s = 1100.0
        assert journal.seen("k") is None


async def test_a_key_of_an_append_that_failed_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    async with opened(tmp_path, remember_keys_s=KEEP_S) as journal:
        with monkeypatch.context() as patch:
            patch.setattr("os.write", fail)
            with pytest.raises(OSError, match="No space"):
                await journal.append([b"a"], key="k", digest=b"d")
        assert journal.seen("k") is None


async def test_keys_outlive_their_records(tmp_path: Path) -> None:
    clock = SetClock(1000.0)
    keys = [f"k{n}" for n in range(20)]
    async with opened(tmp_path, clock=clock, remember_keys_s=KEEP_S, segment_bytes=500) as journal:
        for key in keys:
            await journal.append([b"x" * 200], key=key, digest=b"d")
        await journal.release(Position(20))
        assert journal.first_record >= 18
    for _ in range(2):
        async with opened(tmp_path, clock=clock, remember_keys_s=KEEP_S, segment_bytes=500) as journal:
            assert [key for key in keys if journal.seen(key) is None] == []


async def test_files_of_keys_go_once_all_in_them_are_too_old(tmp_path: Path) -> None:
    clock = SetClock(1000.0)
    async with opened(tmp_path, clock=clock, remember_keys_s=KEEP_S, segment_bytes=500) as journal:
        for n in range(40):
            clock.wall_s = 1000.0 + 10 * n
            await journal.append([b"x" * 200], key=f"k{n}", digest=b"d")
            await journal.release(Position(n + 1))
        assert 3 <= len(list(tmp_path.glob("*.keys"))) <= 12
        remembered = [n for n in range(40) if journal.seen(f"k{n}") is not None]
        assert remembered == list(range(30, 40))


async def test_a_journal_that_remembered_no_keys_finds_them_in_its_files(tmp_path: Path) -> None:
    clock = SetClock(1000.0)
    async with opened(tmp_path, clock=clock, segment_bytes=500) as journal:
        for n in range(10):
            await journal.append([b"x" * 200], key=f"k{n}", digest=b"d")
        assert journal.seen("k0") is None
    for _ in range(2):
        async with opened(tmp_path, clock=clock, remember_keys_s=KEEP_S) as journal:
            assert all(journal.seen(f"k{n}") is not None for n in range(10))


async def test_a_damaged_file_of_keys_is_told(tmp_path: Path) -> None:
    async with opened(tmp_path, remember_keys_s=KEEP_S, segment_bytes=500) as journal:
        for n in range(10):
            await journal.append([b"x" * 200], key=f"k{n}")
    path = min(tmp_path.glob("*.keys"))
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"\.keys is damaged: restore it"):
        async with opened(tmp_path, remember_keys_s=KEEP_S):
            pass


def seen(number: int, wall_s: float) -> SeenKey:
    return SeenKey(f"k{number}", b"d", 1, wall_s)


def test_only_so_many_keys_are_kept_the_oldest_go_first(tmp_path: Path) -> None:
    keys = SeenKeys(tmp_path, KEEP_S, keys_max=10)
    for n in range(25):
        keys.add(seen(n, 1000.0))
    assert len(keys) == 10
    assert [n for n in range(25) if keys.find(f"k{n}", 1000.0) is not None] == list(range(15, 25))


def test_keys_that_are_forgotten_too_soon_are_told_once_an_hour(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    keys = SeenKeys(tmp_path, 86_400.0, keys_max=100)
    for n in range(100):
        keys.add(seen(n, 10.0 * n))
    assert caplog.messages == []
    for n in range(100, 600):
        keys.add(seen(n, 10.0 * n))
    told = [message for message in caplog.messages if "is now remembered for 1000 s" in message]
    assert len(told) == len(caplog.messages) == 2, "5,000 s are two hours begun"
    assert "instead of remember_keys = 86400 s, since there are more than 100" in told[0]


def test_keys_that_had_their_time_are_forgotten_in_silence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    keys = SeenKeys(tmp_path, 100.0, keys_max=50)
    for n in range(200):
        keys.add(seen(n, 10.0 * n))
    assert caplog.messages == []


def test_files_whose_keys_were_too_many_go_too(tmp_path: Path) -> None:
    keys = SeenKeys(tmp_path, KEEP_S, keys_max=10)
    for serial in range(5):
        group = [seen(10 * serial + n, 1000.0 + serial) for n in range(10)]
        for key in group:
            keys.add(key)
        keys.save(serial, group)
    keys.forget(1005.0, oldest_serial=5)
    assert [path.name for path in tmp_path.glob("*.keys")] == ["00000004.keys"]


def test_old_keys_leave_the_memory_when_new_ones_come(tmp_path: Path) -> None:
    keys = SeenKeys(tmp_path, KEEP_S)
    for n in range(50):
        keys.add(seen(n, 1000.0 + 10 * n))
    assert len(keys) == 10


def test_a_clock_that_is_set_back_forgets_nothing(tmp_path: Path) -> None:
    keys = SeenKeys(tmp_path, KEEP_S)
    keys.add(seen(0, 5000.0))
    keys.add(seen(1, 1000.0))
    assert keys.find("k0", 1000.0) is not None
    assert keys.find("k1", 1000.0) is not None
