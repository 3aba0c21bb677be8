"""The splitter of keyed queries: imbScore, DLB with both picks, KG, PKG, LPTF, and lanes that come and go."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from policies.arrays import Array, IntArray
from policies.keys.balancing import Balance, BalanceTerms, GroupMove, Pick, balance
from policies.keys.imbalance import imb_score, lane_loads
from policies.keys.placement import by_hash, by_two_choices, longest_first
from policies.keys.splitter import KeySplitter

PICKS: tuple[Pick, ...] = ("heavy", "light")
LANES = 5
GROUPS = 4096


def applied(lane_of: IntArray, found: Balance) -> IntArray:
    after = lane_of.copy()
    for move in found.moves:
        assert after[move.group] == move.source
        after[move.group] = move.target
    return after


def zipf(exponent: float, seed: int, events: int = 60_000, keys: int = 4096) -> IntArray:
    """Return the groups of events whose keys are drawn from a Zipf distribution over a random order of the keys."""
    chance = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1) ** exponent
    order = chance.permutation(keys)
    return np.asarray(order[chance.choice(keys, events, p=weights / weights.sum())], dtype=np.intp)


def even(groups: IntArray) -> Array:
    return np.bincount(groups, minlength=GROUPS).astype(float)


class Worlds:
    """Random loads, where they are, and what lanes can do."""

    loads = arrays(np.float64, 40, elements=st.floats(0, 1000).map(round).map(float))
    places = arrays(np.intp, 40, elements=st.integers(0, LANES - 1))
    capacities = arrays(np.float64, LANES, elements=st.floats(0.5, 4))


def test_the_score_is_the_relative_standard_deviation_in_percent() -> None:
    assert imb_score(np.array([10.0, 10, 10])) == 0
    assert imb_score(np.array([0.0, 20])) == pytest.approx(100)
    assert imb_score(np.array([90.0, 110])) == pytest.approx(10)
    assert imb_score(np.zeros(3)) == 0


def test_a_lanes_load_is_that_of_its_groups() -> None:
    loads = lane_loads(np.array([1.0, 2, 4, 8]), np.array([0, 2, 0, 2]), 4)
    assert loads.tolist() == [5, 0, 10, 0]


@given(Worlds.loads, Worlds.places, Worlds.capacities, st.sampled_from(PICKS), st.floats(0, 1))
def test_moves_lower_the_score_and_lose_no_group(
    load: Array, lane_of: IntArray, capacity: Array, pick: Pick, moved_most: float
) -> None:
    found = balance(load, lane_of, capacity, BalanceTerms(theta=10, pick=pick, moved_most=moved_most))
    after = applied(lane_of, found)
    assert len(found.moves) <= moved_most * len(load)
    assert len({move.group for move in found.moves}) == len(found.moves)
    assert all(load[move.group] > 0 and move.source != move.target for move in found.moves)
    assert found.score_before == pytest.approx(imb_score(lane_loads(load, lane_of, LANES) / capacity))
    assert found.score_after == pytest.approx(imb_score(lane_loads(load, after, LANES) / capacity))
    score = found.score_before
    for done in range(1, len(found.moves) + 1):
        so_far = applied(lane_of, Balance(found.moves[:done], 0, 0, None))
        lower = imb_score(lane_loads(load, so_far, LANES) / capacity)
        assert lower < score
        score = lower


@given(Worlds.loads, Worlds.places, Worlds.capacities, st.sampled_from(PICKS))
def test_it_ends_balanced_or_where_no_further_move_helps(
    load: Array, lane_of: IntArray, capacity: Array, pick: Pick
) -> None:
    terms = BalanceTerms(theta=10, pick=pick, moved_most=1)
    found = balance(load, lane_of, capacity, terms)
    if found.score_after <= terms.theta:
        return
    after = applied(lane_of, found)
    relative = lane_loads(load, after, LANES) / capacity
    target = int(relative.argmin())
    gone = {move.group for move in found.moves}
    for group in range(len(load)):
        if load[group] == 0 or after[group] == target or group in gone:
            continue
        other = after.copy()
        other[group] = target
        assert imb_score(lane_loads(load, other, LANES) / capacity) >= found.score_after - 1e-3


def test_balanced_lanes_are_left_alone() -> None:
    load = np.array([10.0, 11, 9, 10, 10])
    found = balance(load, by_hash(5, 5), np.ones(5), BalanceTerms(theta=15))
    assert (found.moves, found.hot_group) == ((), None)
    assert found.score_before == found.score_after


def test_the_picks_move_the_heaviest_or_the_lightest_group_that_helps() -> None:
    load = np.array([8.0, 4, 2, 1, 0])
    lane_of = np.array([0, 0, 0, 0, 1])
    heavy = balance(load, lane_of, np.ones(2), BalanceTerms(theta=30, pick="heavy", moved_most=1))
    assert heavy.moves == (GroupMove(0, 0, 1),)
    light = balance(load, lane_of, np.ones(2), BalanceTerms(theta=30, pick="light", moved_most=1))
    assert [move.group for move in light.moves] == [3, 2, 1]


def test_a_faster_lane_gets_more() -> None:
    load = np.ones(300)
    found = balance(load, by_hash(300, 3), np.array([1.0, 1, 4]), BalanceTerms(theta=1, moved_most=1))
    loads = lane_loads(load, applied(by_hash(300, 3), found), 3)
    assert loads == pytest.approx([50, 50, 200], abs=3)


def test_a_hot_key_is_named_and_keeps_its_lane_for_itself() -> None:
    load = np.full(50, 1.0)
    load[7] = 100
    found = balance(load, by_hash(50, LANES), np.ones(LANES), BalanceTerms(theta=15, moved_most=1))
    assert found.hot_group == 7
    after = applied(by_hash(50, LANES), found)
    assert np.flatnonzero(after == after[7]).tolist() == [7]
    # With one more lane the greatest load is the same.
    more = balance(load, by_hash(50, LANES + 1), np.ones(LANES + 1), BalanceTerms(theta=15, moved_most=1))
    wider = applied(by_hash(50, LANES + 1), more)
    assert lane_loads(load, wider, LANES + 1).max() == lane_loads(load, after, LANES).max() == 100


def test_two_keys_that_could_part_are_not_hot() -> None:
    load = np.array([50.0, 50, 1, 1])
    found = balance(load, np.array([0, 0, 1, 1]), np.ones(2), BalanceTerms(moved_most=1))
    assert found.hot_group is None
    assert found.score_after <= 15


@pytest.mark.parametrize("seed", range(2))
def test_dlb_balances_zipf_keys_as_far_as_the_greatest_key_allows(seed: int) -> None:
    events = zipf(1.5, seed)
    load = even(events)
    places = by_hash(GROUPS, LANES)
    hashed = imb_score(lane_loads(load, places, LANES))
    heavy = balance(load, places, np.ones(LANES), BalanceTerms(moved_most=1))
    light = balance(load, places, np.ones(LANES), BalanceTerms(moved_most=1, pick="light"))
    # No division of the other keys can do better than equal parts beside the greatest key.
    best = np.full(LANES, (load.sum() - load.max()) / (LANES - 1))
    best[0] = load.max()
    for found in (heavy, light):
        assert imb_score(best) - 1e-6 <= found.score_after < hashed
        assert found.hot_group == load.argmax()
        assert imb_score(lane_loads(load, applied(places, found), LANES)) == pytest.approx(found.score_after)
    assert heavy.score_after <= imb_score(best) + 3
    assert len(heavy.moves) < len(light.moves) / 2
    few = balance(load, places, np.ones(LANES), BalanceTerms())
    assert len(few.moves) <= 0.05 * GROUPS
    assert few.score_after <= imb_score(best) + 8
    # LPTF is as good, and moves nearly everything.
    longest = longest_first(load, LANES)
    assert imb_score(lane_loads(load, longest, LANES)) <= imb_score(best) + 1
    assert np.count_nonzero(longest != places) > 0.5 * GROUPS


def test_flat_keys_need_no_move() -> None:
    load = even(zipf(0.2, 1))
    assert balance(load, by_hash(GROUPS, LANES), np.ones(LANES), BalanceTerms()).moves == ()


def test_two_choices_balance_even_a_hot_key_by_dividing_it() -> None:
    events = zipf(1.5, 4, events=20_000)
    loads = np.zeros(LANES)
    chosen = by_two_choices(events, loads)
    assert loads.tolist() == np.bincount(chosen, minlength=LANES).tolist()
    hot = int(np.bincount(events).argmax())
    assert len(set(chosen[events == hot].tolist())) == 2
    assert imb_score(loads) < imb_score(np.bincount(events % LANES, minlength=LANES).astype(float))
    assert set(by_two_choices(events[:50], np.zeros(1)).tolist()) == {0}


def test_events_of_a_moved_group_go_to_its_new_lane_only_once_its_state_is_there() -> None:
    splitter = KeySplitter(10, ["home", "vm-1"], BalanceTerms(moved_most=0.1))
    hot = np.array([4, 4, 4, 2, 3] * 200)
    assert set(splitter.split(hot).tolist()) == {0, 1}
    found = splitter.end_window({})
    assert found is not None
    (move,) = found.moves
    assert move.source == 0
    assert (splitter.split(np.array([move.group])) == move.source).all()
    splitter.moved(found.moves)
    assert (splitter.split(np.array([move.group])) == move.target).all()
    with pytest.raises(ValueError, match="group 2 is in lane 1, not in 0"):
        splitter.moved(found.moves)
    assert splitter.score < found.score_before


def test_few_events_are_no_reason_to_move() -> None:
    splitter = KeySplitter(10, ["home", "vm-1"], BalanceTerms())
    splitter.split(np.full(399, 4))
    assert splitter.end_window({}) is None


def test_each_window_is_judged_by_itself_and_small_ones_together() -> None:
    splitter = KeySplitter(2, ["home", "vm-1"], BalanceTerms(theta=1))
    splitter.split(np.zeros(10_000, dtype=np.intp))
    first = splitter.end_window({})
    assert first is not None
    assert first.score_before == pytest.approx(100)
    for _ in range(3):
        splitter.split(np.array([0, 1] * 50))
        assert splitter.end_window({}) is None
    splitter.split(np.array([0, 1] * 50))
    second = splitter.end_window({})
    assert second is not None
    assert second.score_before == 0


def test_a_new_lane_gets_groups_and_a_lane_that_ends_gives_them_back() -> None:
    splitter = KeySplitter(100, ["home"], BalanceTerms(theta=5, moved_most=1))
    events = np.arange(100).repeat(10)
    splitter.split(events)
    assert splitter.end_window({}) is not None
    splitter.split(events)
    splitter.open_lane("vm-1")
    found = splitter.end_window({"home": 100.0, "vm-1": 300.0})
    assert found is not None
    splitter.moved(found.moves)
    counts = np.bincount(splitter.lane_of, minlength=2)
    assert counts.tolist() == pytest.approx([25, 75], abs=3)
    splitter.open_lane("vm-2")
    with pytest.raises(ValueError, match="lane vm-1 still has"):
        splitter.close_lane("vm-1")
    splitter.moved(splitter.moves_off("vm-1", {}))
    assert not np.any(splitter.lane_of == 1)
    splitter.close_lane("vm-1")
    assert splitter.lanes == ("home", "vm-2")
    assert np.bincount(splitter.lane_of).sum() == 100
    assert np.count_nonzero(splitter.lane_of == 1) > 40


def test_groups_without_events_are_spread_when_their_lane_ends() -> None:
    splitter = KeySplitter(90, ["home", "vm-1", "vm-2"], BalanceTerms())
    splitter.moved(splitter.moves_off("vm-2", {}))
    assert np.bincount(splitter.lane_of, minlength=3).tolist() == [45, 45, 0]


def test_impossible_requests_are_refused() -> None:
    with pytest.raises(ValueError, match="2 key groups cannot be divided among 3 lanes"):
        KeySplitter(2, ["a", "b", "c"], BalanceTerms())
    with pytest.raises(ValueError, match="must not be negative"):
        BalanceTerms(theta=-1)
    splitter = KeySplitter(4, ["home"], BalanceTerms())
    with pytest.raises(ValueError, match="home is open already"):
        splitter.open_lane("home")
    with pytest.raises(ValueError, match="the only one"):
        splitter.moves_off("home", {})
    with pytest.raises(ValueError, match=r"vm-9 is not open; these are: home"):
        splitter.close_lane("vm-9")
