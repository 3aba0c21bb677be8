"""What happened to a VM."""

from __future__ import annotations

from dataclasses import dataclass

from policies.vms.vm import VmInput, VmState


@dataclass(frozen=True, slots=True)
class StoryLine:
    """One event in the life of a VM, and the reason."""

    at_s: float
    event_id: str
    happened: VmInput
    state: VmState
    why: str
