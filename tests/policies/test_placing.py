from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.signals import HOME
from policies.switching.placing import move_is_due, next_place, target_place

VMS = ("vm-1", "vm-2", "vm-3")
SHARES = st.fixed_dictionaries({}, optional={lane: st.sampled_from([0.0, 0.2, 0.5, 1.0]) for lane in (HOME, *VMS)})


@given(place=st.sampled_from((HOME, *VMS)), shares=SHARES, usable=st.sets(st.sampled_from(VMS)))
def test_a_query_is_sent_only_where_it_can_be_opened_and_has_a_share(
    place: str, shares: dict[str, float], usable: set[str]
) -> None:
    target = target_place(place, shares, usable)
    possible = {vm for vm in usable if shares.get(vm, 0.0) > 0}
    assert target in possible or (target == HOME and not possible)
    assert target_place(target, shares, usable) == target, "it does not go on from there"
    if place in possible:
        assert target == place
    assert all(shares[vm] <= shares[target] or target == place for vm in possible)


@pytest.mark.parametrize(
    ("place", "target", "present", "copied_ahead", "pause_s", "due"),
    [
        (HOME, HOME, {"vm-1"}, True, 0.0, False),
        (HOME, "vm-1", {"vm-1"}, False, 0.0, False),
        (HOME, "vm-1", {"vm-1"}, True, 1.0, True),
        (HOME, "vm-1", {"vm-1"}, True, 11.0, False),
        ("vm-1", HOME, {"vm-1"}, True, 11.0, True),
        ("vm-1", HOME, {"vm-1"}, False, 1.0, False),
        ("vm-1", HOME, set(), False, 11.0, True),
        ("vm-1", "vm-2", {"vm-2"}, False, 11.0, True),
    ],
)
def test_when_a_move_is_due(
    place: str, target: str, present: set[str], copied_ahead: bool, pause_s: float, due: bool
) -> None:
    found = move_is_due(place, target, present, copied_ahead=copied_ahead, pause_s=pause_s, pause_most_s=10.0)
    assert found is due


def test_from_one_vm_to_another_it_goes_by_way_of_home() -> None:
    assert next_place("vm-1", "vm-2") == HOME
    assert next_place("vm-1", HOME) == HOME
    assert next_place(HOME, "vm-1") == "vm-1"
    assert next_place("vm-1", "vm-1") == "vm-1"
