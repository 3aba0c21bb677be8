"""The only way in which tests on an event loop wait for a state that is not announced."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

DEADLINE_S = 60.0


class Movable(Protocol):
    """A clock that stands until it is moved."""

    def advance(self, by_s: float) -> None:
        """Move time on."""
        ...


async def until(
    condition: Callable[[], object],
    clock: Movable | None = None,
    step_s: float = 0.0,
    *,
    what: str = "the state that the test waits for",
    deadline_s: float = DEADLINE_S,
) -> None:
    """Wait for a state while threads and tasks work; ``clock`` moves by ``step_s`` each time the state is not there.

    Args:
        condition: true once the state is reached.
        clock: is moved meanwhile; None moves no clock.
        step_s: how far it moves each time.
        what: the state, for the message if it is not reached.
        deadline_s: how long it may take.
    """
    give_up_s = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < give_up_s, f"not within {deadline_s:g} s: {what}"
        if clock is not None:
            clock.advance(step_s)
        await asyncio.sleep(0.001)
