from collections.abc import Sequence

from policies.switching.ranking import Candidate, Ranking, ranked, total_excess_s


def candidate(query: str, latency_s: float, *, wants: bool = True, qos_s: float = 1.0) -> Candidate:
    return Candidate(query=query, latency_s=latency_s, latency_qos_s=qos_s, tolerance_s=1.0, wants_cloud=wants)


def test_the_query_that_misses_its_target_most_comes_first() -> None:
    order = ranked([candidate("a", 5.0, qos_s=4.0), candidate("b", 4.0), candidate("c", 4.0)])
    assert [c.query for c in order] == ["b", "c", "a"]


def test_a_query_within_its_target_does_not_offset_another() -> None:
    assert total_excess_s([candidate("a", 3.0), candidate("b", 0.2)]) == 2.0


def test_one_after_another_while_the_total_excess_falls() -> None:
    ranking = Ranking(slot_s=1.0)
    refused = ranking.update([candidate("a", 5.0), candidate("b", 4.0), candidate("c", 3.0)], 10.0)
    assert ranking.switched == ("a",)
    assert refused == dict.fromkeys("bc", "waits to see what switching a did")
    ranking.update([candidate("a", 4.0), candidate("b", 4.0), candidate("c", 3.0)], 11.0)
    assert ranking.switched == ("a",)
    ranking.update([candidate("a", 3.0), candidate("b", 4.0), candidate("c", 3.0)], 12.0)
    assert ranking.switched == ("a", "b")


def test_a_switch_that_did_not_help_is_not_followed_until_a_new_vm_is_ready() -> None:
    ranking = Ranking(slot_s=1.0)
    both = [candidate("a", 5.0), candidate("b", 4.0)]
    ranking.update(both, 10.0)
    for at_s in (12.0, 15.0, 20.0):
        assert "did not lower" in ranking.update(both, at_s)["b"]
    ranking.vm_ready()
    assert ranking.update(both, 20.5) == {}
    assert ranking.switched == ("a", "b")


def test_a_switch_in_vain_is_taken_back_for_the_next_query() -> None:
    ranking = Ranking(slot_s=1.0)
    ranking.update([candidate("a", 5.0), candidate("b", 4.0)], 10.0)
    worse = [candidate("a", 7.0), candidate("b", 4.0)]
    assert "did not lower" in ranking.update(worse, 20.9)["b"]
    assert ranking.update(worse, 21.0) == {"a": "it was switched in vain"}
    assert ranking.switched == ("b",)
    better = [candidate("a", 4.5), candidate("b", 3.0)]
    for at_s in (23.0, 40.0):
        assert ranking.update(better, at_s) == {"a": "it was switched in vain"}
    met = [candidate("a", 0.9), candidate("b", 0.9)]
    assert ranking.update(met, 41.0) == {}
    assert ranking.switched == ("b", "a")


def test_each_is_tried_once_and_then_the_first_stays() -> None:
    ranking = Ranking(slot_s=1.0)
    low = {"a": 5.0, "b": 4.0, "c": 3.0}
    tried: list[Sequence[str]] = []
    for at_s in range(200):
        # Whichever is in the cloud is slower than at home.
        ranking.update([candidate(name, s + 2 * ranking.is_switched(name)) for name, s in low.items()], float(at_s))
        if ranking.switched != (tried or [()])[-1]:
            tried.append(ranking.switched)
    assert tried == [("a",), ("b",), ("c",), ("a",)]


def test_a_switch_that_helps_the_query_itself_stays() -> None:
    ranking = Ranking(slot_s=1.0)
    ranking.update([candidate("a", 5.0), candidate("b", 4.0)], 10.0)
    for at_s in (12.0, 22.0, 60.0):
        # The load rises meanwhile.
        assert "did not lower" in ranking.update([candidate("a", 4.9), candidate("b", 9.0)], at_s)["b"]
    assert ranking.switched == ("a",)


def test_a_query_that_wants_no_cloud_leaves_and_may_come_back_alone_at_once() -> None:
    ranking = Ranking(slot_s=1.0)
    ranking.update([candidate("a", 5.0)], 10.0)
    ranking.update([candidate("a", 1.0, wants=False)], 11.0)
    assert ranking.switched == ()
    ranking.update([candidate("a", 6.0)], 12.0)
    assert ranking.switched == ("a",)


def test_a_query_that_left_does_not_keep_the_others_at_home() -> None:
    ranking = Ranking(slot_s=1.0)
    ranking.update([candidate("a", 5.0)], 10.0)
    ranking.update([candidate("a", 4.0), candidate("b", 0.5)], 12.0)
    assert ranking.switched == ("a", "b")
    both = [candidate("a", 4.0), candidate("b", 4.0)]
    assert "did not lower" in ranking.update([*both, candidate("c", 4.0)], 20.0)["c"]
    assert ranking.update([candidate("a", 4.0), candidate("b", 0.0, wants=False), candidate("c", 9.0)], 21.0) == {}
    assert ranking.switched == ("a", "c")


def test_while_all_targets_are_met_one_follows_another() -> None:
    ranking = Ranking(slot_s=1.0)
    both = [candidate("a", 0.5), candidate("b", 0.4)]
    assert ranking.update(both, 10.0) == {"b": "waits to see what switching a did"}
    assert ranking.update(both, 12.0) == {}
    assert ranking.switched == ("a", "b")


def test_nobody_is_switched_who_does_not_want_to() -> None:
    ranking = Ranking(slot_s=1.0)
    assert ranking.update([candidate("a", 9.0, wants=False)], 10.0) == {}
    assert ranking.switched == ()


def test_a_switch_that_helped_is_not_blamed_when_the_load_rises_later() -> None:
    ranking = Ranking(slot_s=1.0)
    ranking.update([candidate("a", 5.0)], 10.0)
    ranking.update([candidate("a", 3.0)], 13.0)
    for at_s in (40.0, 60.0):
        assert "did not lower" in ranking.update([candidate("a", 9.0), candidate("b", 9.0)], at_s)["b"]
    assert ranking.switched == ("a",)


def test_nothing_is_taken_back_while_all_targets_are_met() -> None:
    ranking = Ranking(slot_s=1.0)
    ranking.update([candidate("a", 0.5)], 10.0)
    assert ranking.update([candidate("a", 0.9), candidate("b", 0.5)], 60.0) == {}
    assert ranking.switched == ("a", "b")
