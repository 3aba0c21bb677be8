"""The section ``selections`` of a query."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import ConfigError, load
from infra.messages import Pattern, PatternStep, SelectionRule

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
            "give exactly one of every, every_events and when",
        ),
        (
            ["selections: {opens: {every_events: 5}, closes: {}}"],
            "queries.first.selections.closes",
            "give at least one of after, events and when",
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
        (
            ["selections: {opens: {every_events: 5}, closes: {events: 5, same: id}}"],
            "queries.first.selections.closes.same",
            "needs when, too",
        ),
        (
            ["selections: {opens: {every_events: 5}, closes: {when: id = 'a', same: sent}}"],
            "queries.first.selections.closes.same",
            'column "sent" is TIMESTAMP, but must be STRING, BOOLEAN or a whole number',
        ),
        (
            ["selections: {opens: {every_events: 5}, closes: {when: id = 'a', same: idd}}"],
            "queries.first.selections.closes.same",
            '"idd" is not a column of schema',
        ),
        ([WINDOWS, "output: {mode: complete}"], "queries.first.output", "cannot be used with selections"),
    ],
)
def test_what_does_not_fit_is_told(write: Write, sections: list[str], key: str, says: str) -> None:
    found = answers(write, *sections)
    assert any(where == key and says in text for where, text in found), found


STEPS = "[{name: a, when: id = 'a'}, {name: b, when: id = 'b'}]"
PATTERN = f"pattern: {{time: sent, within: 10s, sequence: {STEPS}}}"


def test_a_pattern_becomes_a_rule_and_needs_no_sql(write: Write) -> None:
    found = load(write((SQL, PATTERN)), {}).queries["first"]
    steps = (PatternStep(name="a", when="id = 'a'"), PatternStep(name="b", when="id = 'b'"))
    assert found.query_sql == "SELECT * FROM matches"
    assert found.selection_rule == SelectionRule(
        column="sent",
        each_ms=0,
        each_events=0,
        after_ms=10_000,
        events=0,
        most_events=100_000,
        most_open=100_000,
        pattern=Pattern(operator="sequence", steps=steps, within_ms=10_000),
    )
    assert load(write((SQL, f"sql: SELECT selection FROM matches\n    {PATTERN}")), {}).queries["first"].sql


def test_a_last_step_that_must_not_come_makes_the_selection_longer(write: Write) -> None:
    none = "{name: c, when: id = 'c', times: none, for: 500ms}"
    rule = load(write((SQL, PATTERN.replace("}]", f"}}, {none}]"))), {}).queries["first"].selection_rule
    assert rule is not None
    assert rule.pattern is not None
    assert (rule.after_ms, rule.pattern.within_ms, rule.pattern.steps[-1].for_ms) == (10_500, 10_000, 500)


@pytest.mark.parametrize(
    ("old", "new", "key", "says"),
    [
        ("time: sent, ", "", "pattern.time", "is missing: within needs the TIMESTAMP column"),
        ("time: sent", "time: id", "pattern.time", 'column "id" is STRING, but must be TIMESTAMP'),
        ("within: 10s, ", "", "pattern", "give within, events, or both"),
        ("sequence", "conjunktion", "pattern.conjunktion", "did you mean"),
        ("within: 10s, sequence", "disjunction: [], within: 10s, sequence", "pattern.disjunction", "at least 2"),
        ("sequence", "disjunction", "pattern.within", "a disjunction is one event: remove it"),
        ("name: b", "name: A", "pattern", "step A has the name of another step: rename it"),
        ("name: b", "name: Sent", "pattern", "step Sent has the name of a column of schema"),
        ("name: b", "name: due", "pattern", "step due has the name of a column of the matches"),
        ("name: b", "name: _b", "pattern.sequence.1.name", "write up to 64 letters"),
        ("'a'}", "'a', times: many}", "pattern.sequence.0.times", "must be one: the first event of a match opens"),
        ("'b'}", "'b', for: 1s}", "pattern.sequence.1.for", "is for a last step with times: none"),
        ("{time", "{consumption: eager, time", "pattern.consumption", "restricted"),
    ],
)
def test_mistakes_in_a_pattern_say_what_to_do(write: Write, old: str, new: str, key: str, says: str) -> None:
    path = write((SQL, PATTERN.replace(old, new, 1)))
    with pytest.raises(ConfigError) as error:
        load(path, {})
    found = [(problem.key, problem.text) for problem in error.value.problems]
    assert any(of == f"queries.first.{key}" and says in text for of, text in found), found


def test_a_pattern_and_selections_exclude_each_other(write: Write) -> None:
    found = answers(write, WINDOWS, PATTERN)
    assert ("queries.first.selections", "cannot be used with pattern; remove one of them") in found
