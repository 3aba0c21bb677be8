"""Notices that a config file has changed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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


async def watch(path: Path, clock: Clock, changed: Callable[[], Awaitable[None]]) -> None:
    """Call ``changed`` each time a file has changed and then was the same for a second.

    Args:
        path: of the file; an editor may replace it.
        clock: time.
        changed: called with nothing.
    """
    known = seen = await asyncio.to_thread(mark_of, path)
    while True:
        await clock.sleep_until(clock.now() + EVERY_S)
        found = await asyncio.to_thread(mark_of, path)
        if found is not None and found == seen and found != known:
            known = found
            await changed()
        seen = found
