"""The section ``selections`` of a query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from infra.messages import SelectionRule

Write = Callable[..., Path]
SQL = "sql: SELECT id FROM events"
WINDOWS = "selections: {time: sent, opens: {every: 10s}, closes: {after: 1m}}"


def answers(write: Write, *sections: str) -> list[tuple[str, str]]:
    path = write((SQL, "\n    ".join((SQL, *sections))))
    try:
        load(path, {})
    except ConfigError as error:
        return [(problem.key, problem.text) for problem in error.problems]
    return []


def test_windows_of_time_and_of_events_become_rules(write: Write) -> None:
    assert load(write(), {}).queries["first"].selection_rule is None
    timed = load(write((SQL, f"{SQL}\n    {WINDOWS}")), {}).queries["first"].selection_rule
    assert timed == SelectionRule(
        column="sent",
        each_ms=10_000,
        each_events=0,
        after_ms=60_000,
        events=0,
        most_events=100_000,
        most_open=100_000,
    )
    counted = "selections: {opens: {every_events: 5}, closes: {events: 20}, max_events: 30, max_open: 8}"
    assert load(write((SQL, f"{SQL}\n    {counted}")), {}).queries["first"].selection_rule == SelectionRule(
        column="", each_ms=0, each_events=5, after_ms=0, events=20, most_events=30, most_open=8
    )


@pytest.mark.parametrize(
    ("sections", "key", "says"),
    [
        (
            ["selections: {opens: {every: 10s}, closes: {events: 5}}"],
            "queries.first.selections.time",
            "is missing: every and after need the TIMESTAMP column",
        ),
        (
            ["selections: {time: id, opens: {every: 10s}, closes: {events: 5}}"],
            "queries.first.selections.time",
            'column "id" is STRING, but must be TIMESTAMP',
        ),
        (
            ["selections: {opens: {every: 10s, every_events: 5}, closes: {events: 5}}"],
            "queries.first.selections.opens",
            "give exactly one of every and every_events",
        ),
        (
            ["selections: {opens: {every_events: 5}, closes: {}}"],
            "queries.first.selections.closes",
            "give after, events, or both",
        ),
        (
            [WINDOWS, "event_time: {column: sent, lateness: 1s}"],
            "queries.first.event_time",
            "cannot be used with selections",
        ),
        (
            [WINDOWS, "switching: {mode: keys, key: id}"],
            "queries.first.switching.mode",
            "must not be keys with selections",
        ),
        (
            ["switching: {mode: selections}"],
            "queries.first.switching.mode",
            '"selections" is not one of auto, data, keys',
        ),
        ([WINDOWS, "output: {mode: complete}"], "queries.first.output", "cannot be used with selections"),
    ],
)
def test_what_does_not_fit_is_told(write: Write, sections: list[str], key: str, says: str) -> None:
    found = answers(write, *sections)
    assert any(where == key and says in text for where, text in found), found
