from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.signals import HOME, QuerySlot
from policies.switching.sharing import AutoShare, FixedShare, split
from tests.policies.fluid import Fluid, Lane

names = st.lists(st.sampled_from(["vm-1", "vm-2", "vm-3", "vm-4"]), unique=True, max_size=4)
rates = st.dictionaries(st.sampled_from([HOME, "vm-1", "vm-2", "vm-3", "vm-4"]), st.floats(0, 1e6))


def settled_share(input_per_s: float, home: Lane, cloud: Lane, *, slots: int = 120) -> tuple[float, list[QuerySlot]]:
    """Run the feedback on two lanes and return the mean share at the end, and all slots."""
    fluid = Fluid(lambda _: input_per_s, {HOME: home, "vm-1": cloud})
    controller, shares, seen = AutoShare(1.0), [], []
    for at in range(slots):
        slot = fluid.run_slot()
        seen.append(slot)
        if at >= 5:
            share = controller.update(slot, ["vm-1"], fluid.router.shares.get("vm-1", 0.0))
            fluid.set_shares(dict(split(share, ["vm-1"], slot.rates)))
            shares.append(share)
    return sum(shares[-40:]) / 40, seen


def served_per_s(slots: list[QuerySlot]) -> float:
    return sum(sum(slot.dispatched_events.values()) for slot in slots) / len(slots)


def test_a_lane_that_is_owed_less_than_half_a_run_has_not_refused_it() -> None:
    """Three VMs get a run of ten events each only in every fourth slot."""
    controller, cloud = AutoShare(1.0), ["vm-1", "vm-2", "vm-3"]
    share = controller.update(QuerySlot(query="q", latency_s=1.0), cloud, 0.0)
    for at in range(24):
        lanes = dict.fromkeys(cloud, 10) if at % 4 == 3 else {HOME: 10}
        slot = QuerySlot(
            query="q",
            latency_s=1.0,
            home_lane_s=2.0,
            cloud_lane_s=2.0,
            dispatched_events=lanes,
            dispatched_runs=len(lanes),
        )
        share = controller.update(slot, cloud, share)
    assert share == pytest.approx(0.75, abs=0.1)


@pytest.mark.parametrize("horizon_s", [1.5, 5.0, float("inf")])
@pytest.mark.parametrize(
    ("input_per_s", "cloud_per_s", "share"),
    [(1800, 1000, 0.5), (2200, 1000, 0.5), (2700, 2000, 0.667), (3500, 2000, 0.667)],
)
def test_the_share_settles_where_the_rates_say(
    input_per_s: float, cloud_per_s: float, share: float, horizon_s: float
) -> None:
    home = Lane(1000, room_events=1000 * horizon_s)
    cloud = Lane(cloud_per_s, wan_s=0.07, room_events=cloud_per_s * horizon_s)
    found, _ = settled_share(input_per_s, home, cloud)
    assert found == pytest.approx(share, abs=0.07)


def test_a_cloud_twice_as_fast_as_thought_is_soon_fully_used() -> None:
    home, cloud = Lane(1000, room_events=1500), Lane(2000, wan_s=0.07, room_events=3000)
    _, seen = settled_share(3500, home, cloud, slots=20)
    assert served_per_s(seen[8:]) >= 0.98 * 3000


@pytest.mark.parametrize("horizon_s", [1.5, 5.0])
def test_a_narrow_link_gets_what_it_can_carry_and_home_stays_busy(horizon_s: float) -> None:
    home = Lane(1000, room_events=1000 * horizon_s)
    cloud = Lane(300, wan_s=0.07, room_events=300 * horizon_s, engine_per_s=1000)
    found, seen = settled_share(2000, home, cloud)
    assert 300 / 1300 - 0.02 <= found <= 300 / 1300 + 0.08
    assert sum(slot.dispatched_events[HOME] for slot in seen[-40:]) / 40 == pytest.approx(1000, rel=0.02)
    assert served_per_s(seen[-40:]) == pytest.approx(1300, rel=0.02)


def test_below_capacity_a_narrow_link_is_not_overloaded() -> None:
    found, seen = settled_share(1250, Lane(1000), Lane(300, wan_s=0.07, engine_per_s=1000))
    assert 0.2 - 0.04 <= found <= 300 / 1250
    assert max(slot.latency_s for slot in seen[-40:]) < 1.0


def test_it_starts_from_the_service_rates_and_takes_unknown_ones_for_equal() -> None:
    slot = QuerySlot(query="q", latency_s=3.0, rates={HOME: 500.0, "vm-1": 1500.0})
    assert AutoShare(1.0).update(slot, ["vm-1"], 0.0) == pytest.approx(0.75)
    unknown = QuerySlot(query="q", latency_s=3.0, rates={HOME: 500.0})
    assert AutoShare(1.0).update(unknown, ["vm-1"], 0.0) == pytest.approx(0.5)
    assert AutoShare(1.0).update(unknown, ["vm-1", "vm-2"], 0.0) == pytest.approx(2 / 3)


HOME_IS_SLOW = QuerySlot(query="q", latency_s=9.0, home_lane_s=5.0, cloud_lane_s=1.0)


def test_a_cloud_without_credit_does_not_wind_the_share_up() -> None:
    controller = AutoShare(1.0)
    start = controller.update(HOME_IS_SLOW, ["vm-1"], 0.0)
    starved = replace(HOME_IS_SLOW, no_credit=frozenset({"vm-1"}))
    assert {controller.update(starved, ["vm-1"], start) for _ in range(50)} == {start}
    assert controller.update(HOME_IS_SLOW, ["vm-1"], start) > start


def test_a_share_the_cloud_does_not_take_follows_what_it_takes() -> None:
    controller = AutoShare(1.0)
    share = controller.update(HOME_IS_SLOW, ["vm-1"], 0.0)
    refusing = replace(HOME_IS_SLOW, dispatched_events={HOME: 800, "vm-1": 200})
    for _ in range(50):
        share = controller.update(refusing, ["vm-1"], share)
    lent = 0.2 * 0.8
    assert share == pytest.approx(0.2 + lent, abs=0.06)


@pytest.mark.parametrize("at_home", [1, 2, 3, 4])
def test_runs_too_large_for_each_slot_to_have_its_share_are_no_refusal(at_home: int) -> None:
    even = QuerySlot(query="q", latency_s=9.0, home_lane_s=2.0, cloud_lane_s=2.0, rates={HOME: at_home, "vm-1": 1.0})
    controller = AutoShare(1.0)
    start = share = controller.update(even, ["vm-1"], 0.0)
    for slot in [*[{HOME: 600}] * at_home, {"vm-1": 600}] * 20:
        share = controller.update(replace(even, dispatched_events=slot), ["vm-1"], share)
    assert share > 0.6 * start


def test_what_was_dispatched_while_switching_was_off_is_no_refusal() -> None:
    controller = AutoShare(1.0)
    start = controller.update(HOME_IS_SLOW, ["vm-1"], 0.0)
    all_home = replace(HOME_IS_SLOW, dispatched_events={HOME: 1000})
    assert controller.update(all_home, ["vm-1"], 0.0) > start


def test_another_set_of_lanes_begins_anew() -> None:
    controller = AutoShare(1.0)
    for _ in range(30):
        share = controller.update(HOME_IS_SLOW, ["vm-1"], 0.0)
    assert share > 0.6
    assert controller.update(HOME_IS_SLOW, ["vm-2"], share) == pytest.approx(0.5)


lane_s = st.none() | st.floats(0, 1e4)


@given(st.lists(st.tuples(lane_s, lane_s, st.booleans(), st.integers(0, 9), st.floats(0, 1)), max_size=60), rates)
def test_home_is_never_starved_and_the_cloud_always_tried(
    slots: list[tuple[float | None, float | None, bool, int, float]], rates: dict[str, float]
) -> None:
    controller = AutoShare(1.0)
    for home_s, cloud_s, blocked, to_cloud, share in slots:
        slot = QuerySlot(
            query="q",
            latency_s=1.0,
            home_lane_s=home_s,
            cloud_lane_s=cloud_s,
            rates=rates,
            no_credit=frozenset({"vm-1"} if blocked else ()),
            dispatched_events={HOME: 3, "vm-1": to_cloud},
        )
        assert 0.02 <= controller.update(slot, ["vm-1"], share) <= 0.95


@given(st.floats(0, 1), names, rates)
def test_shares_are_thousandths_that_sum_to_one(share: float, cloud: list[str], rates: dict[str, float]) -> None:
    route = split(share, cloud, rates)
    assert route[0][0] == HOME
    assert round(sum(part for _, part in route) * 1000) == 1000
    assert all(0 <= part <= 1 and part * 1000 == pytest.approx(round(part * 1000)) for _, part in route)
    assert {lane for lane, _ in route[1:]} <= set(cloud)
    if cloud:
        assert 1 - route[0][1] == pytest.approx(share, abs=0.0005001)


def test_cloud_lanes_share_by_their_rates_within_bounds() -> None:
    assert split(0.6, ["vm-1", "vm-2"], {"vm-1": 100.0, "vm-2": 200.0}) == ((HOME, 0.4), ("vm-1", 0.2), ("vm-2", 0.4))
    assert split(0.6, ["vm-1", "vm-2"], {"vm-1": 100.0}) == ((HOME, 0.4), ("vm-1", 0.3), ("vm-2", 0.3))
    starved = dict(split(1.0, ["vm-1", "vm-2"], {"vm-1": 0.001, "vm-2": 1000.0}))
    assert starved["vm-1"] == pytest.approx(1 / 9, abs=0.001)
    assert starved[HOME] == 0.0


def test_a_fixed_share_stays_and_must_be_a_share() -> None:
    assert FixedShare(0.1).update(HOME_IS_SLOW, ["vm-1"], 0.5) == 0.1
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        FixedShare(10)
