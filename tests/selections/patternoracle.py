"""Patterns as one would look for them by hand: selection after selection, event after event. An oracle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]
Found = dict[str, Any]
Condition = Callable[[Event, Found], bool]


@dataclass(frozen=True)
class Step:
    """A step, with its condition as SQL and as a function of the event and of what earlier steps have found."""

    name: str
    sql: str
    meets: Condition
    times: str = "one"
    for_ms: int = 0


@dataclass(frozen=True)
class Case:
    """A pattern; ``closes`` says which event after the opening one ends a selection early."""

    operator: str
    steps: Sequence[Step]
    within_ms: int = 0
    events: int = 0
    every_ms: int = 0
    restricted: bool = False
    closes: Condition | None = None

    @property
    def lasts_ms(self) -> int:
        """How long a selection lasts."""
        return self.within_ms + self.steps[-1].for_ms


def selections(case: Case, events: Sequence[Event]) -> Iterator[list[Event]]:
    """Yield the events of each selection that closes, in the order of closing; of those of one event, of opening."""
    found = list[tuple[int, int, list[Event]]]()
    free_from, now_ms, times_ms = 0, -1, list[int]()
    for event in events:
        now_ms = max(now_ms, event["ms"])
        times_ms.append(now_ms)
    opening = case.steps if case.operator in ("conjunction", "disjunction") else case.steps[:1]
    for at, event in enumerate(events):
        if (case.restricted and at < free_from) or not any(_may_open(step, event) for step in opening):
            continue
        inside, closed = list[Event](), False
        free_from = len(events)
        for later in range(at, len(events)):
            if case.within_ms and times_ms[later] > times_ms[at] + case.lasts_ms:
                closed, free_from = True, later
                break
            inside.append(events[later])
            by_match = (
                case.closes is not None and later > at and case.closes(events[later], {case.steps[0].name: event})
            )
            if by_match or len(inside) == case.events or case.operator == "disjunction":
                closed, free_from = True, later + 1
                break
        if closed:
            found.append((later, at, inside))
    for _, _, inside in sorted(found, key=lambda each: each[:2]):
        yield inside


def _may_open(step: Step, event: Event) -> bool:
    try:
        return step.meets(event, {})
    except KeyError:
        return True  # it depends on the event of another step


def matches(case: Case, events: Sequence[Event]) -> list[Found]:
    """Return the matches in order."""
    finders = {
        "sequence": _sequence,
        "conjunction": _conjunction,
        "disjunction": _disjunction,
        "aperiodic": _aperiodic,
        "periodic": _periodic,
    }
    return [found for inside in selections(case, events) for found in finders[case.operator](case, inside)]


def _sequence(case: Case, inside: list[Event]) -> Iterator[Found]:
    found: Found = {case.steps[0].name: inside[0]}
    first, last, many, absent = 0, 0, None, list[Step]()
    for step in case.steps[1:]:
        if step.times == "none":
            absent.append(step)
            continue
        at = next((n for n in range(first + 1, len(inside)) if _counts(case, step, inside, n, found)), None)
        if at is None:
            return
        if many is not None:
            chosen = [n for n in many[1] if n < at]
            found[many[0].name], last = [inside[n] for n in chosen], chosen[-1]
        if any(each.meets(inside[n], found) for each in absent for n in range(last + 1, at)):
            return
        absent, first, last, many = [], at, at, None
        if step.times == "many":
            all_of = [n for n in range(at, len(inside)) if _counts(case, step, inside, n, found)]
            found[step.name], last, many = [inside[n] for n in all_of], all_of[-1], (step, all_of)
        else:
            found[step.name] = inside[at]
    for each in absent:
        for event in inside[last + 1 :]:
            late = each.for_ms and event["ms"] > inside[last]["ms"] + each.for_ms
            if not late and each.meets(event, found):
                return
    yield found


def _counts(case: Case, step: Step, inside: list[Event], at: int, found: Found) -> bool:
    in_time = not case.steps[-1].for_ms or inside[at]["ms"] <= inside[0]["ms"] + case.within_ms
    return in_time and step.meets(inside[at], found)


def _conjunction(case: Case, inside: list[Event]) -> Iterator[Found]:
    found, at = Found(), list[int]()
    for step in case.steps:
        place = next((n for n, event in enumerate(inside) if step.meets(event, found)), None)
        if place is None:
            return
        found[step.name] = inside[place]
        at.append(place)
    if min(at) == 0:
        yield found


def _disjunction(case: Case, inside: list[Event]) -> Iterator[Found]:
    yield {step.name: inside[0] if step.meets(inside[0], {}) else None for step in case.steps}


def _end(case: Case, inside: list[Event]) -> int:
    until, found = case.steps[-1], {case.steps[0].name: inside[0]}
    return next((n for n in range(1, len(inside)) if until.meets(inside[n], found)), len(inside))


def _aperiodic(case: Case, inside: list[Event]) -> Iterator[Found]:
    first, each, _ = case.steps
    found = {first.name: inside[0]}
    chosen = [event for event in inside[1 : _end(case, inside)] if each.meets(event, found)]
    for number, event in enumerate(chosen, 1):
        yield {"occurrence": number, first.name: inside[0], each.name: event}


def _periodic(case: Case, inside: list[Event]) -> Iterator[Found]:
    begin, end = inside[0]["ms"], _end(case, inside)
    number = 1
    while (due := begin + number * case.every_ms) <= begin + case.within_ms:
        if end < len(inside) and due >= inside[end]["ms"]:
            return
        yield {"occurrence": number, "due_ms": due, case.steps[0].name: inside[0]}
        number += 1


def plain(value: Any) -> Any:
    """Return a result as the oracle writes it: an event by its number."""
    match value:
        case {"n": number}:
            return number
        case list():
            return [plain(each) for each in value]
        case datetime():
            return round(value.timestamp() * 1000)
    return value
