"""Notices that a config file, or a file that it names, has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Final

from infra.clock import Clock

EVERY_S: Final = 1.0


def mark_of(path: Path) -> tuple[int, int, int] | None:
    """Return something that differs when a file is another one, or was written; None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


async def watch(files: Callable[[], Iterable[Path]], clock: Clock, changed: Callable[[], Awaitable[None]]) -> None:
    """Call ``changed`` each time one of the files has changed and then was the same for a second.

    Args:
        files: returns the paths; an editor may replace a file, and a reload may name others.
        clock: time.
        changed: called with nothing.
    """
    known = seen = await asyncio.to_thread(_marks, files)
    while True:
        await clock.sleep_until(clock.now() + EVERY_S)
        found = await asyncio.to_thread(_marks, files)
        known = {path: known.get(path, mark) for path, mark in found.items()}
        resting = {path: mark for path, mark in found.items() if mark is not None and mark == seen.get(path)}
        if any(mark != known[path] for path, mark in resting.items()):
            known |= resting
            await changed()
        seen = found


def _marks(files: Callable[[], Iterable[Path]]) -> dict[Path, tuple[int, int, int] | None]:
    return {path: mark_of(path) for path in files()}
