from __future__ import annotations

import pytest

from gateway.views.why.commandwords import in_words
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
        (Fit(query="q", training=(), seed=1, cause=WHY), "query q: train its forecast: L 42.31 s >= start_vm_above"),
        (Ask(turn=1, questions=(), cause=WHY), ""),
    ],
)
def test_a_command_is_one_line_of_the_log(command: Command, line: str) -> None:
    assert in_words(command) == line
