"""Launches ahead of time: noise costs one change in a billing period; a rise that was forecast is one change."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from policies.advice import Advice, Site
from policies.demand import Demand
from policies.planning.cooldown import CoolDown
from policies.switching.query import SwitchedQuery
from tests.policies.policy_data import TERMS, query_settings

PERIOD_S = 60.0


def lived(wishes: list[int], to: int, every_s: float = 10.0) -> tuple[list[float], list[int]]:
    """When VMs were launched for a policy that wants this many at each moment, and how many there were; all stay."""
    rest, there, started_s = CoolDown(PERIOD_S), 0, []
    counts = []
    for at, wanted in enumerate(wishes):
        at_s = every_s * at
        while there < wanted and rest.left_s(there, at_s) == 0:
            there += 1
            rest.started(there, at_s, max(wanted, to))
            started_s.append(at_s)
        counts.append(there)
    return started_s, counts


@given(st.lists(st.integers(0, 8), max_size=60))
def test_what_is_not_foreseen_changes_at_most_once_a_period(wishes: list[int]) -> None:
    moments = sorted(set(lived(wishes, to=0)[0]))
    assert all(later - earlier >= PERIOD_S for earlier, later in pairwise(moments))


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60))
def test_whoever_foresees_all_never_waits(wishes: list[int]) -> None:
    _, counts = lived(wishes, to=8)
    assert counts == [max(wishes[: at + 1]) for at in range(len(wishes))]


def test_a_foreseen_rise_goes_on_as_far_as_it_was_foreseen_and_no_further() -> None:
    assert lived([1, 2, 3, 4, 4, 4, 4], to=3)[1] == [1, 2, 3, 3, 3, 3, 4]
    assert lived([1, 2, 3, 4, 4, 4, 4], to=0)[1] == [1, 1, 1, 1, 1, 1, 4]


def test_what_was_foreseen_a_period_ago_excuses_no_change_any_more() -> None:
    rest = CoolDown(PERIOD_S)
    rest.started(1, 0.0, to=4)
    rest.started(2, 100.0, to=2)
    assert rest.left_s(2, 110.0) == 50.0


def test_after_an_end_a_start_waits_but_a_vm_that_is_lost_is_replaced_at_once() -> None:
    rest = CoolDown(PERIOD_S, same_s=1.0)
    rest.started(3, 0.0, to=3)
    rest.ended(2, 100.0, to=0)
    assert rest.left_s(2, 130.0) == 30.0
    assert rest.left_s(1, 130.0) == 0.0
    assert rest.left_s(2, 159.5) == 0.0  # slots do not end to the millisecond


def test_a_dip_that_was_foreseen_with_what_comes_after_it_holds_nothing_up() -> None:
    rest = CoolDown(PERIOD_S)
    rest.ended(1, 100.0, to=3)
    assert (rest.left_s(2, 110.0), rest.left_s(3, 110.0)) == (0.0, 50.0)


def test_what_is_foreseen_for_a_query_that_stays_home_excuses_nobody() -> None:
    """After a launch at 0 s, a request for one VM may grow to the two that were forecast, but not to another's nine."""
    settings = [query_settings("q"), query_settings("home", mode="off")]
    site = Site(max_vms=9, terms=TERMS, boot_s=5.0, slot_s=1.0)
    demand = Demand({each.name: SwitchedQuery(each, site.slot_s) for each in settings}, site)
    demand.advice = {"q": Advice(wanted=1, rising_to=2), "home": Advice(wanted=9, rising_to=9)}
    demand.started(1, 0.0)
    assert (demand.cool_down_left_s(1, 1.0), demand.cool_down_left_s(2, 1.0)) == (0.0, TERMS.period_s - 1.0)
    demand.ended(0, 100.0)
    assert (demand.cool_down_left_s(1, 101.0), demand.cool_down_left_s(2, 101.0)) == (0.0, TERMS.period_s - 1.0)
