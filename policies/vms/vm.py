"""The life of one VM, after Figure 4 of ESM (Ravindra et al., ICPE 2017), as a table of transitions.

Rules: money is only spent between STARTING and GONE. Events only flow in SENDING. A VM that failed or was lost is still
terminated, because the cloud may go on billing it. After we asked for its end, events of a VM change nothing.
"""

from __future__ import annotations

from enum import StrEnum


class VmState(StrEnum):
    """The state of a VM."""

    ABSENT = "absent"
    WAITING = "waiting"
    STARTING = "starting"
    IDLE = "idle"
    SENDING = "sending"
    DRAINING = "draining"
    ENDING = "ending"
    FAILED = "failed"
    LOST = "lost"
    GONE = "gone"

    # Equal strings are equal states. Enum would hash the name instead, in Python, and states are looked up often.
    __hash__ = str.__hash__


class VmInput(StrEnum):
    """An event in the life of a VM."""

    HIGH = "L >= L_s"
    AHEAD = "wanted ahead"
    CALM = "L < L_s"
    TOLERATED = "tau elapsed"
    ADOPTED = "an earlier gateway's"
    READY = "ready"
    SEND = "phi_data = 1"
    HOLD = "phi_data = 0"
    KEEP = "period ends, keep"
    STOP = "stop"
    DRAINED = "drained"
    OVERDUE = "overdue"
    FAILED = "failed"
    LOST = "lost"
    RECLAIMED = "notice that it will be taken"
    GONE = "taken back"


READY_STATES = frozenset({VmState.IDLE, VmState.SENDING})
"""States in which a VM can take events."""

WANTED_STATES = READY_STATES | {VmState.STARTING}
"""States in which phi_VM of equation 1 is 1."""

LIVE_STATES = WANTED_STATES | {VmState.DRAINING, VmState.ENDING, VmState.FAILED, VmState.LOST}
"""States in which a VM may cost money."""

_ON_THE_WAY_OUT = (VmState.ENDING, VmState.FAILED, VmState.LOST)
_TOO_LATE = (VmInput.READY, VmInput.DRAINED, VmInput.FAILED, VmInput.LOST, VmInput.RECLAIMED)

TRANSITIONS: dict[tuple[VmState, VmInput], VmState] = {
    (VmState.ABSENT, VmInput.HIGH): VmState.WAITING,
    (VmState.ABSENT, VmInput.ADOPTED): VmState.IDLE,
    (VmState.ABSENT, VmInput.AHEAD): VmState.WAITING,
    (VmState.WAITING, VmInput.CALM): VmState.ABSENT,
    (VmState.WAITING, VmInput.TOLERATED): VmState.STARTING,
    (VmState.STARTING, VmInput.READY): VmState.IDLE,
    (VmState.STARTING, VmInput.STOP): VmState.ENDING,
    (VmState.STARTING, VmInput.OVERDUE): VmState.FAILED,
    (VmState.STARTING, VmInput.RECLAIMED): VmState.ENDING,
    (VmState.IDLE, VmInput.SEND): VmState.SENDING,
    (VmState.SENDING, VmInput.HOLD): VmState.IDLE,
    (VmState.IDLE, VmInput.KEEP): VmState.IDLE,
    (VmState.SENDING, VmInput.KEEP): VmState.SENDING,
    (VmState.IDLE, VmInput.STOP): VmState.DRAINING,
    (VmState.SENDING, VmInput.STOP): VmState.DRAINING,
    (VmState.IDLE, VmInput.RECLAIMED): VmState.DRAINING,
    (VmState.SENDING, VmInput.RECLAIMED): VmState.DRAINING,
    (VmState.DRAINING, VmInput.RECLAIMED): VmState.DRAINING,
    (VmState.DRAINING, VmInput.DRAINED): VmState.ENDING,
    (VmState.DRAINING, VmInput.OVERDUE): VmState.ENDING,
    **{
        (state, happened): after
        for state in (VmState.STARTING, VmState.IDLE, VmState.SENDING, VmState.DRAINING)
        for happened, after in ((VmInput.FAILED, VmState.FAILED), (VmInput.LOST, VmState.LOST))
    },
    **{(state, happened): state for state in _ON_THE_WAY_OUT for happened in _TOO_LATE},
    **{(state, VmInput.GONE): VmState.GONE for state in VmState if state in LIVE_STATES},
}


class ImpossibleTransitionError(ValueError):
    """An event is impossible in the VM's state: a bug of ours."""


def step(state: VmState, happened: VmInput) -> VmState:
    """Return the state after ``happened``.

    Raises:
        ImpossibleTransitionError: the table has no such transition.
    """
    try:
        return TRANSITIONS[state, happened]
    except KeyError:
        raise ImpossibleTransitionError(f"'{happened}' cannot happen to a VM that is {state}") from None


def mermaid() -> str:
    """Return the table as a mermaid diagram; parallel edges share an arrow, loops without effect are left out."""
    labels: dict[tuple[VmState, VmState], list[str]] = {}
    for (state, happened), after in TRANSITIONS.items():
        if state not in _ON_THE_WAY_OUT or after is not state:
            labels.setdefault((state, after), []).append(happened.value)
    arrows = [f"    {state} --> {after}: {' / '.join(words)}" for (state, after), words in labels.items()]
    return "\n".join(["stateDiagram-v2", "    [*] --> absent", *arrows, "    gone --> [*]", ""])
