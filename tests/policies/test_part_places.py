"""Where the parts of a keyed query are to be."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from policies.keys.places import STAY_S, PartPlaces
from policies.signals import HOME


def with_load(*events: int) -> PartPlaces:
    places = PartPlaces(len(events))
    places.arrived(events)
    places.end_slot()
    return places


def load_at(place: str, targets: tuple[str, ...], events: tuple[int, ...]) -> float:
    return sum(load for at, load in zip(targets, events, strict=True) if at == place) / sum(events)


def test_the_loads_of_the_places_follow_the_shares() -> None:
    events = (10, 20, 30, 40, 50, 60, 70, 80)
    found = with_load(*events).targets([HOME] * 8, {HOME: 0.25, "vm-1": 0.75}, 0.0)
    assert abs(load_at("vm-1", found, events) - 0.75) < 0.1


def test_parts_leave_a_place_without_a_share_at_once_and_the_others_stay() -> None:
    places = with_load(10, 10, 10, 10)
    places.moved(100.0)
    found = places.targets(["vm-1", "vm-2", HOME, "vm-2"], {HOME: 0.5, "vm-2": 0.5}, 100.1)
    assert found[0] in {HOME, "vm-2"}
    assert places.targets(["vm-1", "vm-1", HOME, HOME], {HOME: 1.0}, 100.1) == (HOME,) * 4


def test_between_two_moves_nothing_moves() -> None:
    places = with_load(10, 10, 10, 10)
    places.moved(100.0)
    shares, at_home = {HOME: 0.5, "vm-1": 0.5}, (HOME,) * 4
    assert places.targets(at_home, shares, 100.0 + STAY_S - 0.1) == at_home
    assert places.targets(at_home, shares, 100.0 + STAY_S).count("vm-1") == 2


def test_a_hot_part_is_said() -> None:
    assert with_load(0, 0, 0).heaviest == 0
    assert with_load(95, 3, 2).heaviest == 0.95


def test_old_events_count_less_and_less() -> None:
    places = with_load(100, 0)
    for _ in range(20):
        places.arrived((0, 100))
        places.end_slot()
    assert places.targets([HOME, HOME], {HOME: 0.01, "vm-1": 0.99}, 0.0)[1] == "vm-1"


@given(
    st.lists(st.integers(0, 1000), min_size=2, max_size=12),
    st.dictionaries(
        st.sampled_from([HOME, "vm-1", "vm-2", "vm-3"]), st.one_of(st.just(0.0), st.floats(0.001, 1)), max_size=4
    ),
    st.data(),
)
def test_each_part_is_where_there_is_a_share_and_what_is_settled_stays(
    events: list[int], shares: dict[str, float], data: st.DataObject
) -> None:
    now = [data.draw(st.sampled_from([HOME, "vm-1", "vm-2", "gone"])) for _ in events]
    places = with_load(*events)
    found = places.targets(now, shares, 0.0)
    used = {place for place, share in shares.items() if share > 0} or {HOME}
    assert set(found) <= used
    assert places.targets(found, shares, 0.0) == found
