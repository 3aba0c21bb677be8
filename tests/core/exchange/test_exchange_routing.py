from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.exchange.routing import Router
from policies.signals import HOME

SIZES = st.lists(st.integers(1, 500), min_size=1, max_size=300)
SHARE = st.floats(0, 1)


def deal(router: Router, sizes: list[int], with_room: set[str]) -> dict[str | None, int]:
    dealt: dict[str | None, int] = {}
    for size in sizes:
        lane = router.pick(size, with_room)
        if lane is not None:
            router.dispatched(lane, size)
        dealt[lane] = dealt.get(lane, 0) + size
    return dealt


@given(SIZES, SHARE)
def test_a_cloud_lane_follows_its_share_within_a_run(sizes: list[int], share: float) -> None:
    router = Router()
    router.set_shares({HOME: 1 - share, "vm1": share})
    total = cloud = 0
    largest = max(sizes)
    for size in sizes:
        lane = router.pick(size, {HOME, "vm1"})
        assert lane is not None
        router.dispatched(lane, size)
        total += size
        cloud += size if lane == "vm1" else 0
        assert share * total - largest - 1e-6 <= cloud <= share * total + largest + 1e-6


@given(SIZES, st.floats(0.05, 0.45), st.floats(0.05, 0.45))
def test_two_cloud_lanes_never_get_more_than_their_shares_by_a_run(sizes: list[int], one: float, two: float) -> None:
    router = Router()
    router.set_shares({HOME: 1 - one - two, "vm1": one, "vm2": two})
    dealt = dict.fromkeys((HOME, "vm1", "vm2"), 0)
    for size in sizes:
        lane = router.pick(size, set(dealt))
        assert lane is not None
        router.dispatched(lane, size)
        dealt[lane] += size
        assert dealt["vm1"] <= one * sum(dealt.values()) + max(sizes)
        assert dealt["vm2"] <= two * sum(dealt.values()) + max(sizes)


@pytest.mark.parametrize("share", [0.005, 0.03, 0.3, 0.99])
def test_the_long_run_follows_the_share_also_when_it_is_small_and_runs_are_long(share: float) -> None:
    router = Router()
    router.set_shares({HOME: 1 - share, "vm1": share})
    dealt = deal(router, [500] * 4000, {HOME, "vm1"})
    assert dealt["vm1"] == pytest.approx(share * 2_000_000, abs=500)


def test_home_takes_what_a_cloud_lane_cannot_take_now() -> None:
    router = Router()
    router.set_shares({HOME: 0.5, "vm1": 0.5})
    assert deal(router, [100] * 10, {HOME}) == {HOME: 1000}


def test_a_cloud_lane_without_room_does_not_get_all_of_it_later() -> None:
    router = Router()
    router.set_shares({HOME: 0.9, "vm1": 0.1})
    deal(router, [100] * 10_000, {HOME})
    caught_up = deal(router, [100] * 100, {HOME, "vm1"})
    assert 1_000 < caught_up["vm1"] <= 2_000 + 0.1 * 10_000 + 100


def test_a_cloud_lane_that_has_its_share_waits_even_when_home_has_no_room() -> None:
    router = Router()
    router.set_shares({HOME: 0.5, "vm1": 0.5})
    assert router.pick(100, {"vm1"}) == "vm1"
    router.dispatched("vm1", 100)
    assert router.pick(100, {"vm1"}) is None


@pytest.mark.parametrize("share", [0.0, 1.0])
def test_shares_of_none_and_all(share: float) -> None:
    router = Router()
    router.set_shares({HOME: 1 - share, "vm1": share})
    assert deal(router, [7] * 50, {HOME, "vm1"}) == {("vm1" if share else HOME): 350}


def test_with_all_to_the_cloud_home_gets_nothing_even_when_the_cloud_has_no_room() -> None:
    router = Router()
    router.set_shares({HOME: 0.0, "vm1": 1.0})
    assert router.pick(10, {HOME}) is None


def test_home_only_runs_go_home_or_wait_whatever_the_shares() -> None:
    router = Router()
    router.set_shares({HOME: 0.0, "vm1": 1.0})
    assert router.pick(10, {HOME, "vm1"}, home_only=True) == HOME
    assert router.pick(10, {"vm1"}, home_only=True) is None


def test_no_lane_has_room() -> None:
    assert Router().pick(10, set()) is None


@pytest.mark.parametrize(("before", "after"), [(0.1, 0.2), (0.8, 0.1), (0.05, 0.9)])
def test_a_share_that_changes_is_followed_at_once(before: float, after: float) -> None:
    router = Router()
    router.set_shares({HOME: 1 - before, "vm1": before})
    deal(router, [100] * 400, {HOME, "vm1"})
    router.set_shares({HOME: 1 - after, "vm1": after})
    dealt = deal(router, [100] * 20, {HOME, "vm1"})
    assert dealt.get("vm1", 0) == pytest.approx(after * 2000, abs=200)


def test_many_small_changes_of_a_small_share_do_not_starve_the_lane() -> None:
    router = Router()
    dealt = 0
    for step in range(400):
        share = 0.02 + 0.0001 * (step % 3)
        router.set_shares({HOME: 1 - share, "vm1": share})
        dealt += deal(router, [500, 500], {HOME, "vm1"}).get("vm1", 0)
    assert dealt == pytest.approx(0.021 * 400_000, rel=0.1)


def test_a_lane_that_joins_owes_nothing_and_one_that_leaves_is_forgotten() -> None:
    router = Router()
    deal(router, [100] * 100, {HOME})
    router.set_shares({HOME: 0.5, "vm1": 0.5})
    assert deal(router, [100] * 10, {HOME, "vm1"}) == {HOME: 500, "vm1": 500}
    router.set_shares({HOME: 1.0})
    assert deal(router, [100] * 10, {HOME, "vm1"}) == {HOME: 1000}


@pytest.mark.parametrize("shares", [{HOME: 0.5}, {HOME: 1.2, "vm1": -0.2}, {HOME: 0.6, "vm1": 0.6}, {}])
def test_impossible_shares_are_refused_and_the_old_ones_stay(shares: dict[str, float]) -> None:
    router = Router()
    with pytest.raises(ValueError, match="sum to 1"):
        router.set_shares(shares)
    assert router.shares == {HOME: 1.0}
