"""Finds the lines of a request that are not events, for its answer; the source itself decodes them later.

One attempt to decode costs as much for 100 lines as for one. So requests that arrive at the same time are decoded
together, in turns with a limited number of lines: a long request does not delay short ones.
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
# Lines that cannot be decoded cost 300 times as much as others: they delay an answer at most this long.
_JUDGE_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """The result for a request's lines.

    Attributes:
        looked_at: how many lines were checked, from the first one on.
        dead: how many of these are not events.
        first: number of the first such line, from 0, and the reason; None if there is none.
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
    """Finds the lines that are not events.

    Args:
        dead_among: blocks, and returns number and reason of each line that is not an event, in order.
        clock: limits how long a request is checked.
    """

    def __init__(self, dead_among: Callable[[list[bytes]], list[tuple[int, str]]], clock: Clock) -> None:
        self._dead_among = dead_among
        self._clock = clock
        self._waiting: deque[_Case] = deque()
        self._work: asyncio.Task[None] | None = None

    async def verdict(self, lines: list[bytes]) -> RequestVerdict:
        """Return the result after a second at most, plus the turn that is in progress then."""
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
                continue  # its request is gone
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
