"""Blocking calls in threads; a cancelled caller still waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from infra.together import wait_out

T = TypeVar("T")


async def run_to_end(function: Callable[[], T]) -> T:
    """Like ``asyncio.to_thread``, but a caller that is cancelled meanwhile continues only when the thread is done.

    A thread cannot be stopped. A caller that cancelled a writer and closed its file would close it under the thread.
    """
    return await wait_out(asyncio.to_thread(function))
