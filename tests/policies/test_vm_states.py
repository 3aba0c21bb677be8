import pytest

from policies.vms.vm import LIVE_STATES, TRANSITIONS, ImpossibleTransitionError, VmInput, VmState, mermaid, step

FIGURE_4 = [
    (VmState.ABSENT, VmInput.HIGH, VmState.WAITING),
    (VmState.WAITING, VmInput.CALM, VmState.ABSENT),
    (VmState.WAITING, VmInput.TOLERATED, VmState.STARTING),
    (VmState.STARTING, VmInput.READY, VmState.IDLE),
    (VmState.IDLE, VmInput.SEND, VmState.SENDING),
    (VmState.SENDING, VmInput.HOLD, VmState.IDLE),
    (VmState.IDLE, VmInput.KEEP, VmState.IDLE),
    (VmState.SENDING, VmInput.KEEP, VmState.SENDING),
    (VmState.IDLE, VmInput.STOP, VmState.DRAINING),
    (VmState.SENDING, VmInput.STOP, VmState.DRAINING),
    (VmState.DRAINING, VmInput.DRAINED, VmState.ENDING),
    (VmState.ENDING, VmInput.GONE, VmState.GONE),
]


@pytest.mark.parametrize(("state", "happened", "after"), FIGURE_4)
def test_the_edges_of_figure_4(state: VmState, happened: VmInput, after: VmState) -> None:
    assert step(state, happened) is after


@pytest.mark.parametrize("state", sorted({VmState.STARTING, VmState.IDLE, VmState.SENDING, VmState.DRAINING}))
def test_a_vm_in_use_can_fail_or_be_lost(state: VmState) -> None:
    assert step(state, VmInput.FAILED) is VmState.FAILED
    assert step(state, VmInput.LOST) is VmState.LOST


@pytest.mark.parametrize(
    ("state", "happened"),
    [
        (VmState.ABSENT, VmInput.TOLERATED),
        (VmState.ABSENT, VmInput.READY),
        (VmState.WAITING, VmInput.READY),
        (VmState.STARTING, VmInput.SEND),
        (VmState.STARTING, VmInput.KEEP),
        (VmState.IDLE, VmInput.DRAINED),
        (VmState.SENDING, VmInput.READY),
        (VmState.DRAINING, VmInput.SEND),
        (VmState.DRAINING, VmInput.KEEP),
        (VmState.ENDING, VmInput.SEND),
        (VmState.GONE, VmInput.READY),
        (VmState.GONE, VmInput.GONE),
    ],
)
def test_what_cannot_happen_raises(state: VmState, happened: VmInput) -> None:
    with pytest.raises(ImpossibleTransitionError, match=f"'{happened}' cannot happen to a VM that is {state}"):
        step(state, happened)


def test_every_live_state_leads_to_gone_and_gone_leads_nowhere() -> None:
    for state in LIVE_STATES:
        assert step(state, VmInput.GONE) is VmState.GONE
    assert not any(state is VmState.GONE for state, _ in TRANSITIONS)


def test_every_state_can_be_reached() -> None:
    assert {VmState.ABSENT, *TRANSITIONS.values()} == set(VmState)


def test_the_diagram_shows_each_edge_that_changes_a_state() -> None:
    lines = mermaid().splitlines()
    assert lines[:2] == ["stateDiagram-v2", "    [*] --> absent"]
    for (state, happened), after in TRANSITIONS.items():
        if state is not after:
            arrow = next(line for line in lines if line.startswith(f"    {state} --> {after}: "))
            assert happened.value in arrow.split(": ", 1)[1].split(" / ")
    assert "    idle --> idle: period ends, keep" in lines
    assert not any(line.startswith("    ending --> ending") for line in lines)
