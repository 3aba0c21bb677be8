"""Who is suspected when an engine host ends."""

from __future__ import annotations

from policies.blame import REPEATED_WITHIN_S, Blame, Loss


def test_nobody_is_suspected_when_a_host_is_killed_once() -> None:
    blame = Blame()
    assert blame.suspects(Loss(0.0, {"a": 1.0, "b": 2.0})) == ()
    assert blame.suspects(Loss(REPEATED_WITHIN_S + 1.0, {"a": 1.0})) == (), "so long after the first"


def test_whom_the_host_names_is_suspected_at_once_whoever_waited_longest_first() -> None:
    assert Blame().suspects(Loss(0.0, {"a": 1.0, "b": 2.0, "c": 9.0}, named=("a", "b"))) == ("b", "a")
    assert Blame().suspects(Loss(0.0, {}, named=("b", "a"))) == ("a", "b")


def test_those_who_waited_at_two_losses_in_a_row_are_suspected() -> None:
    blame = Blame()
    assert blame.suspects(Loss(0.0, {"a": 1.0, "b": 2.0})) == ()
    assert blame.suspects(Loss(60.0, {"b": 2.0, "c": 3.0})) == ("b",)
    assert blame.suspects(Loss(120.0, {"b": 2.0, "c": 3.0})) == ("c", "b")
