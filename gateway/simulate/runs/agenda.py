"""The agenda of a virtual clock, and a trace of what happened."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable
from itertools import count

Action = Callable[[], None]


class Agenda:
    """A clock at the time of the present action; actions at equal times happen in the order of their entry."""

    def __init__(self) -> None:
        self._now_s = 0.0
        self._entries: list[tuple[float, int, Action]] = []
        self._numbers = count()

    @property
    def now_s(self) -> float:
        """The virtual time in seconds."""
        return self._now_s

    def at(self, at_s: float, action: Action) -> None:
        """Schedule ``action`` at ``at_s``; right after the present action if that time is over."""
        heapq.heappush(self._entries, (max(at_s, self._now_s), next(self._numbers), action))

    def after(self, wait_s: float, action: Action) -> None:
        """Schedule ``action`` ``wait_s`` from now."""
        self.at(self._now_s + wait_s, action)

    def step(self) -> bool:
        """Carry out the next action; return False if there is none."""
        if not self._entries:
            return False
        at_s, _, action = heapq.heappop(self._entries)
        if at_s > self._now_s:
            self._now_s = at_s
        action()
        return True

    def skip(self, by_s: float) -> None:
        """Step the clock forward: actions that were due meanwhile happen late."""
        self._now_s += by_s


class Trace:
    """The history, one line for each step; the same world gives the same bytes.

    Args:
        agenda: knows the time.
        keep: whether the lines are kept; their digest always is.
    """

    def __init__(self, agenda: Agenda, *, keep: bool = False) -> None:
        self._agenda = agenda
        self._keep = keep
        self._digest = hashlib.sha256()
        self.lines: list[str] = []

    def note(self, what: str) -> None:
        """Write a line."""
        line = f"{self._agenda.now_s:.6f} {what}\n"
        self._digest.update(line.encode())
        if self._keep:
            self.lines.append(line)

    @property
    def digest(self) -> str:
        """SHA-256 of all lines so far."""
        return self._digest.hexdigest()
