"""The sequential splitter as the paper has it: each event alone, and P_c for each open selection. An oracle."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Event:
    """One event: its time, whether it meets the opening and the closing condition, and its key."""

    time_ms: int
    matches: bool
    ends: bool
    key: str | None = None


@dataclass
class Selection:
    """An open selection."""

    start_ms: int
    first: int
    key: str | None
    events: list[int] = field(default_factory=list)


@dataclass
class Sequential:
    """Which of its settings are None decides what it is: a time window, a tuple window, or a pattern."""

    slide_ms: int | None = None
    slide: int | None = None
    window_ms: int | None = None
    count: int | None = None
    on_match: bool = False
    most: int = 1_000_000
    disjoint: bool = False
    same: bool = False

    def run(self, events: list[Event]) -> Iterator[tuple[int, list[int], bool]]:
        """Yield number, events and whether it was bounded, for each selection that closes, when it closes."""
        for number, (selection, bounded) in enumerate(self._closed(events)):
            yield number, selection.events, bounded

    def _closed(self, events: list[Event]) -> Iterator[tuple[Selection, bool]]:
        now_ms, next_start_ms = None, None
        selections: list[Selection] = []
        for number, event in enumerate(events):
            now_ms = event.time_ms if now_ms is None else max(now_ms, event.time_ms)
            if self.slide_ms is not None:
                starts = next_start_ms is None or now_ms >= next_start_ms
                if starts:
                    next_start_ms = now_ms + self.slide_ms - (now_ms % self.slide_ms)
            elif self.slide is not None:
                starts = number % self.slide == 0
            else:
                starts = event.matches
            blocked = self.disjoint and any(
                self.window_ms is None or now_ms <= each.start_ms + self.window_ms for each in selections
            )
            if starts and not blocked:
                selections.append(Selection(now_ms, number, event.key))
            for selection in list(selections):
                if self.window_ms is not None and now_ms > selection.start_ms + self.window_ms:
                    selections.remove(selection)
                    yield selection, False
                    continue
                selection.events.append(number)
                whole = self.count is not None and len(selection.events) == self.count
                fits = not self.same or (event.key is not None and event.key == selection.key)
                matched = self.on_match and event.ends and fits and number > selection.first
                if whole or matched or len(selection.events) == self.most:
                    selections.remove(selection)
                    yield selection, not (whole or matched)
