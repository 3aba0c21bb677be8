from __future__ import annotations

import os
from pathlib import Path

import pytest

from gateway.sinks.progress import ProgressFile
from infra.statefiles import StateError


async def opened(path: Path, owner: str = "me") -> ProgressFile:
    progress = ProgressFile(path, owner)
    await progress.open()
    return progress


async def test_what_was_saved_is_found_again(tmp_path: Path) -> None:
    progress = await opened(tmp_path / "made" / "progress.json")
    progress.note(0, 4)
    progress.note(10, 14)
    await progress.save()
    again = await opened(tmp_path / "made" / "progress.json")
    assert list(again.committed) == list(again.delivered) == [(0, 4), (10, 14)]


async def test_what_was_noted_only_is_not_committed(tmp_path: Path) -> None:
    progress = await opened(tmp_path / "progress.json")
    progress.note(0, 4)
    assert list(progress.delivered) == [(0, 4)]
    assert list(progress.committed) == list((await opened(tmp_path / "progress.json")).committed) == []


async def test_a_save_that_failed_is_made_good_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    progress = await opened(tmp_path / "progress.json")
    progress.note(0, 4)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match="No space"):
            await progress.save()
    assert list(progress.committed) == []
    assert progress.delivered.covers(0, 4)
    await progress.save()
    assert list((await opened(tmp_path / "progress.json")).committed) == [(0, 4)]


async def test_a_saved_set_is_a_new_object(tmp_path: Path) -> None:
    progress = await opened(tmp_path / "progress.json")
    before = progress.committed
    progress.note(0, 4)
    await progress.save()
    assert list(before) == []


async def test_a_file_of_other_state_is_refused_from_the_start(tmp_path: Path) -> None:
    await opened(tmp_path / "progress.json")
    with pytest.raises(StateError, match=r"progress\.json belongs to a different state"):
        await opened(tmp_path / "progress.json", owner="you")


async def test_a_damaged_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "progress.json").write_text('{"owner": "me", "comm')
    with pytest.raises(StateError, match="cannot be read"):
        await opened(tmp_path / "progress.json")
