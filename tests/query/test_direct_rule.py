"""When Spark carries a query by itself, and when the gateway takes over."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.query.direct.rule import DirectRule, DirectTerms, Lateness

TERMS = DirectTerms(late_above_s=2.0, late_for_s=1.0, calm_s=5.0, pause_s=10.0, most_pause_s=60.0)


def begins_s(rule: DirectRule, from_s: float) -> float:
    """Return when a query that is calm from now on may be carried."""
    return next(at / 10 for at in range(int(10 * from_s), 20_000) if rule.may_begin(at / 10, calm=True))


def test_a_query_must_be_calm_for_a_while() -> None:
    rule = DirectRule(TERMS)
    assert not rule.may_begin(0.0, calm=True)
    assert not rule.may_begin(4.9, calm=True)
    assert rule.may_begin(5.0, calm=True)
    assert not rule.may_begin(5.1, calm=False)
    assert not rule.may_begin(6.0, calm=True)
    assert not rule.may_begin(10.9, calm=True)
    assert rule.may_begin(11.0, calm=True)


def test_one_late_result_is_not_enough() -> None:
    late = Lateness(TERMS)
    assert not late.to_take(0.0, 2.1, 4)
    assert not late.to_take(0.5, 2.0, 4)
    assert not late.to_take(0.9, 3.0, 4)
    assert not late.to_take(1.8, 3.0, 4)
    assert late.to_take(2.0, 3.0, 4)


def test_the_gateway_takes_half_of_the_parts_and_then_half_of_the_rest() -> None:
    late, carried, taken = Lateness(TERMS), 4, []
    for tenths in range(60):
        found = late.to_take(tenths / 10, 9.0, carried)
        carried -= found
        if found:
            taken.append((tenths / 10, found))
    assert taken == [(1.0, 2), (2.1, 1), (3.2, 1)]


def test_after_a_failure_the_gateway_keeps_it_for_longer_and_longer() -> None:
    rule = DirectRule(TERMS)
    waited = []
    at_s = 0.0
    for _ in range(5):
        rule.began(at_s)
        rule.ended(at_s, in_vain=True)
        begun_s = begins_s(rule, at_s)
        waited.append(begun_s - at_s)
        at_s = begun_s
    assert waited == [10.0, 20.0, 40.0, 60.0, 60.0]
    rule.ended(at_s, in_vain=False)
    assert begins_s(rule, at_s) - at_s == TERMS.calm_s, "what ended in order has no pause"
    rule.began(at_s)
    rule.ended(at_s + TERMS.good_s - 1, in_vain=True)
    assert begins_s(rule, at_s) - at_s == TERMS.good_s - 1 + TERMS.most_pause_s, "it did not last long enough"
    at_s += 1000
    rule.began(at_s)
    at_s += TERMS.good_s
    rule.ended(at_s, in_vain=True)
    assert begins_s(rule, at_s) - at_s == TERMS.pause_s


@given(st.lists(st.tuples(st.floats(0, 3), st.booleans()), min_size=1, max_size=40))
def test_it_never_begins_unless_it_was_calm_for_all_of_the_time(steps: list[tuple[float, bool]]) -> None:
    rule, now_s, calm_since_s = DirectRule(TERMS), 0.0, None
    for past_s, calm in steps:
        now_s += past_s
        calm_since_s = (now_s if calm_since_s is None else calm_since_s) if calm else None
        expected = calm_since_s is not None and now_s >= calm_since_s + TERMS.calm_s
        assert rule.may_begin(now_s, calm=calm) is expected
