from __future__ import annotations

import pytest

from gateway.views.why.commandwords import CommandLines, in_words
from policies.signals import HOME, Ask, Cause, Command, DrainVm, Fit, SetRoute, SetShed, StartVm, TerminateVm

WHY = Cause("e4", "L 42.31 s >= start_vm_above")


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (StartVm(vm="vm-1", cause=WHY), "launch vm-1: L 42.31 s >= start_vm_above"),
        (DrainVm(vm="vm-1", cause=WHY), "drain vm-1: L 42.31 s >= start_vm_above"),
        (TerminateVm(vm="vm-1", cause=WHY), "terminate vm-1: L 42.31 s >= start_vm_above"),
        (
            SetRoute(query="q", shares=((HOME, 0.6384), ("vm-1", 0.3616)), cause=WHY),
            "query q: 63.8% to home, 36.2% to vm-1: L 42.31 s >= start_vm_above",
        ),
        (
            SetRoute(query="q", shares=((HOME, 1.0),), cause=WHY),
            "query q: all events stay home: L 42.31 s >= start_vm_above",
        ),
        (SetShed(query="q", share=0.25, cause=WHY), "query q: 25% of its events are shed: L 42.31 s >= start_vm_above"),
        (SetShed(query="q", share=0.0, cause=WHY), "query q: no events are shed: L 42.31 s >= start_vm_above"),
        (Fit(query="q", training=(), cause=WHY), "query q: bring its models up to date: L 42.31 s >= start_vm_above"),
        (Ask(turn=1, questions=(), cause=WHY), ""),
    ],
)
def test_a_command_is_one_line_of_the_log(command: Command, line: str) -> None:
    assert in_words(command) == line


def routed(query: str, **shares: float) -> SetRoute:
    return SetRoute(query=query, shares=tuple(shares.items()), cause=WHY)


def test_the_log_shows_a_share_again_when_it_has_changed_by_a_tenth_in_all() -> None:
    lines = CommandLines()
    away = [0.30, 0.35, 0.39, 0.41, 0.45, 0.50, 0.32, 0.30]
    said = [share for share in away if lines.line(routed("q", home=1 - share, vm_1=share))]
    assert said == [0.30, 0.41, 0.30]


def test_the_log_shows_a_small_share_again_when_it_has_fallen_below_half() -> None:
    lines = CommandLines()
    away = [0.08, 0.05, 0.03, 0.06, 0.02, 0.01, 0.10]
    said = [share for share in away if lines.line(routed("q", home=1 - share, vm_1=share))]
    assert said == [0.08, 0.03, 0.01]


def test_the_log_shows_each_change_of_places_and_tells_queries_apart() -> None:
    lines = CommandLines()
    changes = [
        routed("q", home=0.95, vm_1=0.05),
        routed("p", home=0.95, vm_1=0.05),
        routed("q", home=1.0),
        routed("q", home=0.95, vm_2=0.05),
        routed("q", home=0.90, vm_1=0.05, vm_2=0.05),
    ]
    assert [lines.line(command) for command in changes] == [in_words(command) for command in changes]
    assert lines.line(changes[-1]) == ""
    assert lines.line(StartVm(vm="vm-3", cause=WHY)) == in_words(StartVm(vm="vm-3", cause=WHY))
