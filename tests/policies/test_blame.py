"""Which queries are suspects when an engine host ends."""

from __future__ import annotations

from policies.failures.blame import REPEATED_WITHIN_S, Blame, HostLoss, WaitingQuery


def waiting(**waited_s: float) -> dict[str, WaitingQuery]:
    """Queries that had read 10 events and have none in their sinks."""
    return {name: WaitingQuery(for_s, 0, 10) for name, for_s in waited_s.items()}


def test_nobody_is_suspected_when_a_host_is_killed_once() -> None:
    blame = Blame()
    assert blame.suspects(HostLoss(0.0, waiting(a=1.0, b=2.0))) == ()
    assert blame.suspects(HostLoss(REPEATED_WITHIN_S + 1.0, waiting(a=1.0))) == (), "so long after the first"


def test_whom_the_host_names_is_suspected_at_once_in_its_order() -> None:
    assert Blame().suspects(HostLoss(0.0, waiting(a=1.0, b=2.0, c=9.0), named=("a", "b"))) == ("a", "b")
    assert Blame().suspects(HostLoss(0.0, {}, named=("b", "a"))) == ("b", "a")


def test_those_who_waited_at_two_losses_in_a_row_are_suspected() -> None:
    blame = Blame()
    assert blame.suspects(HostLoss(0.0, waiting(a=1.0, b=2.0))) == ()
    assert blame.suspects(HostLoss(60.0, waiting(b=2.0, c=3.0))) == ("b",)
    assert blame.suspects(HostLoss(120.0, waiting(b=2.0, c=3.0))) == ("c", "b")


def test_who_got_through_what_was_under_way_is_not_suspected() -> None:
    blame = Blame()
    assert blame.suspects(HostLoss(0.0, {"a": WaitingQuery(1.0, 0, 10), "b": WaitingQuery(1.0, 0, 10)})) == ()
    assert blame.suspects(HostLoss(60.0, {"a": WaitingQuery(1.0, 10, 90), "b": WaitingQuery(1.0, 9, 90)})) == ("b",)


def test_a_query_that_was_being_opened_both_times_is_suspected() -> None:
    blame = Blame()
    assert blame.suspects(HostLoss(0.0, {"a": WaitingQuery(1.0)})) == ()
    assert blame.suspects(HostLoss(60.0, {"a": WaitingQuery(1.0)})) == ("a",)
