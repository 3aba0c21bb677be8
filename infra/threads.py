"""Blocking calls in threads, for which a cancelled caller still waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from infra.together import wait_out

T = TypeVar("T")


async def run_to_end(function: Callable[[], T]) -> T:
    """Like ``asyncio.to_thread``, but a caller that is cancelled meanwhile goes on only when the thread is done.

    A thread cannot be stopped: whoever cancels a writer and then closes its file would meet it there.
    """
    return await wait_out(asyncio.to_thread(function))
