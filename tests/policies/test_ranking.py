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
    for at_s in (12.0, 20.0, 30.0):
        assert "did not lower" in ranking.update(both, at_s)["b"]
    ranking.vm_ready()
    assert ranking.update(both, 31.0) == {}
    assert ranking.switched == ("a", "b")


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
