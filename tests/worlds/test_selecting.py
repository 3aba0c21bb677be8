"""Worlds of a query with selections: the sink gets those of the sequential operator, once and in order."""

from __future__ import annotations

import pytest

from gateway.query.flow.runlog import LoggedRuns
from gateway.simulate.runs.outcomes import WorldOutcome
from policies.selections.splitter import ClosedSelections, SelectionSplitter
from tests.worlds.selection_worlds import live_selecting

SEEDS = range(1, 61)


@pytest.fixture(scope="module")
def lived() -> tuple[dict[int, str], dict[int, WorldOutcome], str]:
    """The errors and the outcomes by seed, and everything that happened in all worlds."""
    found = {seed: live_selecting(seed, keep_trace=True) for seed in SEEDS}
    errors = {seed: outcome for seed, (_, outcome) in found.items() if isinstance(outcome, str)}
    outcomes = {seed: outcome for seed, (_, outcome) in found.items() if not isinstance(outcome, str)}
    return errors, outcomes, "".join(line for world, _ in found.values() for line in world.trace.lines)


def test_every_world_has_the_selections_of_the_sequential_operator(
    lived: tuple[dict[int, str], dict[int, WorldOutcome], str],
) -> None:
    assert lived[0] == {}


def test_the_worlds_are_worth_living_in(lived: tuple[dict[int, str], dict[int, WorldOutcome], str]) -> None:
    _, outcomes, happened = lived
    (queries,) = zip(*(outcome.queries for outcome in outcomes.values()), strict=True)
    assert sum(query.cloud_events for query in queries) > 0.08 * sum(query.events for query in queries)
    assert max(outcome.vms for outcome in outcomes.values()) >= 5
    for what in ("the gateway is killed", "VmReady", "VmLost", "dies", "hangs", "went elsewhere", "is overdue in"):
        assert happened.count(what) > len(SEEDS) / 30, what


def test_the_same_seed_is_the_same_world(lived: tuple[dict[int, str], dict[int, WorldOutcome], str]) -> None:
    first = SEEDS[0]
    assert live_selecting(first)[1] == lived[1][first]


def _forgets_what_is_open(self: LoggedRuns, committed_before: int) -> int:
    return committed_before


def _counts_anew(self: SelectionSplitter, closed: ClosedSelections, following: int) -> ClosedSelections:
    return closed


@pytest.mark.parametrize(
    ("where", "name", "mistake"),
    [
        (LoggedRuns, "needed_from", _forgets_what_is_open),
        (SelectionSplitter, "renumbered", _counts_anew),
    ],
)
def test_a_mistake_is_found(monkeypatch: pytest.MonkeyPatch, where: type, name: str, mistake: object) -> None:
    monkeypatch.setattr(where, name, mistake)
    assert any(isinstance(live_selecting(seed)[1], str) for seed in SEEDS)
