"""Ending tasks: all together, cancelled, or completed although the caller was cancelled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

_LOG = logging.getLogger(__name__)
T = TypeVar("T")


async def all_or_none(*work: Coroutine[Any, Any, Any]) -> None:
    """Run ``work`` concurrently; if one part fails, or the caller is cancelled, end the others before raising.

    ``asyncio.gather`` would leave the others running while the caller cleans up.

    Raises:
        BaseException: the first failure, as it was raised.
    """
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        await end_tasks(*tasks)
        raise


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and return once they have ended, successfully or not; None is skipped."""
    there = [task for task in tasks if task is not None]
    for task in there:
        task.cancel()
    for end in await asyncio.gather(*there, return_exceptions=True):
        if isinstance(end, Exception):
            _LOG.debug("a task that was cancelled had failed: %r", end)


async def wait_out(work: Awaitable[T], within_s: float | None = None) -> T:
    """Return what ``work`` returns; a caller that is cancelled meanwhile continues only when ``work`` has ended.

    Args:
        work: must end by itself, and also when it is cancelled.
        within_s: how long a cancelled caller waits before ``work`` is cancelled too; None: until it ends.
    """
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        ending = asyncio.ensure_future(_end_within(task, within_s))
        while not ending.done():
            # A caller that is cancelled again waits all the same.
            with suppress(asyncio.CancelledError):
                await asyncio.shield(ending)
        raise


async def _end_within(task: asyncio.Future[Any], within_s: float | None) -> None:
    await asyncio.wait([task], timeout=within_s)
    await end_tasks(task)


async def await_shared(work: asyncio.Future[T]) -> T:
    """Return what ``work`` returns; a caller that is cancelled meanwhile goes on, and so does ``work``, for others."""
    return await asyncio.shield(work)
