"""Concurrent tasks that all succeed or are all undone."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def all_or_none(*work: Coroutine[Any, Any, Any]) -> None:
    """Run ``work`` at once; when one part fails, or the caller is cancelled, end the others before that is raised.

    ``asyncio.gather`` would leave the others running behind the back of whoever cleans up.

    Raises:
        BaseException: the first failure, as it was raised.
    """
    tasks = [asyncio.ensure_future(part) for part in work]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
