"""Says in words where the selections of a query open and close."""

from __future__ import annotations

from collections.abc import Iterator

from gateway.config.words import units
from gateway.views.check.conditions import predicate_text
from infra.messages import SelectionRule
from infra.queryplan import SelectionConditions


def selections_text(rule: SelectionRule, conditions: SelectionConditions | None) -> str:
    """Return which event opens a selection, and which closes it."""
    known = conditions or SelectionConditions()
    alone = ", if none is open" if rule.disjoint else ""
    return f"{_opens(rule, known)} opens one{alone}; {' or '.join(_closes(rule, known))} closes it"


def _opens(rule: SelectionRule, known: SelectionConditions) -> str:
    if rule.each_ms:
        return f"the first event of each {_duration(rule.each_ms)}"
    if rule.each_events:
        return f"one event in {rule.each_events}" if rule.each_events > 1 else "each event"
    found = "each event" if known.opening is None else f"each event where {predicate_text(known.opening)}"
    return f"{found} (only Spark evaluates {known.unread})" if known.unread else found


def _closes(rule: SelectionRule, known: SelectionConditions) -> Iterator[str]:
    if rule.events == 1:
        yield "the same event"
        return
    if known.closing is not None:
        column = rule.closes_same or known.same
        same = f" and {column} is that of the first one" if column else ""
        yield f"the next event where {predicate_text(known.closing)}{same}"
    if rule.after_ms:
        yield f"the first event more than {_duration(rule.after_ms)} later"
    if rule.events:
        yield f"its event number {rule.events}"


def _duration(ms: int) -> str:
    return units.DURATION.format(ms / 1000)
