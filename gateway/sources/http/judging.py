"""Which lines of a request are no events, for its answer: the source itself decodes them later, in the same way.

One attempt at decoding costs as much for 100 lines as for one. So requests that come at the same time are decoded
together, in turns of so many lines: a long request does not keep short ones waiting.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from infra.clock import Clock

TURN_LINES: Final = 1024
# Lines that cannot be decoded cost 300 times as much as others: an answer is not held back by them for longer.
_JUDGE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """What is known of a request's lines.

    Attributes:
        looked_at: lines, from the first one on.
        dead: how many of these are no events.
        first: number of the first such line, from 0, and why it is none; None if there is none.
    """

    looked_at: int
    dead: int
    first: tuple[int, str] | None


@dataclass(slots=True, eq=False)
class _Case:
    lines: list[bytes]
    ends_s: float
    answer: asyncio.Future[RequestVerdict]
    looked_at: int = 0
    dead: list[tuple[int, str]] = field(default_factory=list)

    def verdict(self) -> RequestVerdict:
        return RequestVerdict(self.looked_at, len(self.dead), self.dead[0] if self.dead else None)


class Judge:
    """Says of lines which are no events.

    Args:
        dead_among: blocks, and returns number and reason of each line that is no event, in order.
        clock: bounds how long a request is looked at.
    """

    def __init__(self, dead_among: Callable[[list[bytes]], list[tuple[int, str]]], clock: Clock) -> None:
        self._dead_among = dead_among
        self._clock = clock
        self._waiting: deque[_Case] = deque()
        self._work: asyncio.Task[None] | None = None

    async def verdict(self, lines: list[bytes]) -> RequestVerdict:
        """Return what is known of the lines after a second at most, and the turn that is under way then."""
        case = _Case(lines, self._clock.now() + _JUDGE_S, asyncio.get_running_loop().create_future())
        self._waiting.append(case)
        if self._work is None or self._work.done():
            self._work = asyncio.create_task(self._judge(), name="judge lines")
        return await case.answer

    async def _judge(self) -> None:
        while self._waiting:
            turn = self._next_turn()
            try:
                dead = await asyncio.to_thread(self._dead_among, [line for _, lines in turn for line in lines])
            except Exception as error:
                for case, _ in turn:
                    _settle(case, error)
                continue
            at = 0
            for case, lines in turn:
                own = dead[bisect_left(dead, (at, "")) : bisect_left(dead, (at + len(lines), ""))]
                case.dead += [(case.looked_at + i - at, why) for i, why in own]
                case.looked_at += len(lines)
                at += len(lines)
                if case.looked_at == len(case.lines) or self._clock.now() >= case.ends_s:
                    _settle(case)
                else:
                    self._waiting.append(case)

    def _next_turn(self) -> list[tuple[_Case, list[bytes]]]:
        turn: list[tuple[_Case, list[bytes]]] = []
        room = TURN_LINES
        while self._waiting and room:
            case = self._waiting.popleft()
            if case.answer.done():
                continue  # whoever asked has gone
            lines = case.lines[case.looked_at : case.looked_at + room]
            room -= len(lines)
            turn.append((case, lines))
        return turn


def _settle(case: _Case, error: Exception | None = None) -> None:
    if case.answer.done():
        return
    if error is None:
        case.answer.set_result(case.verdict())
    else:
        case.answer.set_exception(error)
