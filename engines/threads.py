"""Blocking work outside the event loop, on threads that never keep the process alive.

Calls into Spark cannot be cancelled. `asyncio.to_thread` would make a host that exits wait for them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")


async def in_thread(work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Run ``work`` on a thread of its own and return what it returns; a cancelled wait leaves it running."""
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[R] = loop.create_future()

    def finish(result: R | None, error: BaseException | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(cast("R", result))

    def run() -> None:
        result: R | None = None
        failure: BaseException | None = None
        try:
            result = work(*args, **kwargs)
        except BaseException as error:
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(finish, result, failure)

    threading.Thread(target=run, name=getattr(work, "__name__", "work"), daemon=True).start()
    return await outcome
