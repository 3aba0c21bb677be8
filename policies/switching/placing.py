"""Where a query with state is to be, and when it moves there. All of its events go to one place."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from policies.signals import HOME


def target_place(place: str, shares: Mapping[str, float], usable: Collection[str]) -> str:
    """Return where a query is to be: it stays on a VM that has a share; else the VM with the largest one, or home.

    Args:
        place: where it is.
        shares: of the lanes, by name, as the scheduler set them.
        usable: the VMs on which it can be opened, and that do not drain.
    """
    wanted = {vm: share for vm, share in shares.items() if share > 0 and vm in usable}
    return place if place in wanted else max(sorted(wanted), key=wanted.__getitem__, default=HOME)


def next_place(place: str, target: str) -> str:
    """Return where a query goes next on its way to its target: from one VM to another by way of home.

    Home keeps the copy of the state with which the query continues if a VM is lost.
    """
    return target if place in (HOME, target) else HOME


def move_is_due(
    place: str, target: str, present: Collection[str], *, copied_ahead: bool, pause_s: float, pause_most_s: float
) -> bool:
    """Return whether a query moves now: what could be copied ahead is copied, or its VM is gone.

    Args:
        place: where it is.
        target: where it is to be.
        present: the VMs that are linked.
        copied_ahead: whether its state was copied to the target.
        pause_s: how long its events would be held.
        pause_most_s: how long they may be held if it moves to a VM.
    """
    if place != HOME and place not in present:
        return True
    if target == place or not copied_ahead:
        return False
    return target == HOME or pause_s <= pause_most_s
