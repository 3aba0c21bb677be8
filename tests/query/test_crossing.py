"""Which protected fields cross the WAN in which form, and which keep their query at home."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gateway.config.models import PayloadConfig
from gateway.query.crossing import Crossing, crossing_of
from infra.messages import ColumnUse, Predicate, QueryPlan
from infra.payload.sealing import Affixes, FieldKeys

COLUMNS = pa.schema([("id", pa.int64()), ("a", pa.string()), ("b", pa.string()), ("n", pa.int32())])
LIKE_A = Predicate(op="ends_with", column=("a",), value="@x.org")
EQUALS_A = Predicate(op="eq", column=("a",), value="x")
ABOVE_N = Predicate(op="gt", column=("n",), value=3)
EITHER = Predicate(op="or", children=(EQUALS_A, ABOVE_N))
ID = ColumnUse(column="id", copies=("id",))


def plan(*uses: ColumnUse, needed: str = "id", predicates: tuple[Predicate, ...] = (), **more: Any) -> QueryPlan:
    columns = pa.schema([COLUMNS.field(name) for name in needed.split()])
    return QueryPlan(
        switch_class="stateless",
        switchable=True,
        narrow=True,
        needed_schema=columns.serialize().to_pybytes(),
        predicates=predicates,
        **{"uses": (ID, *uses), **more},
    )


def crossing(found: QueryPlan, **payload: Any) -> Crossing:
    return crossing_of(PayloadConfig.model_validate(payload), found, COLUMNS)


def use(column: str, **more: Any) -> ColumnUse:
    return ColumnUse(column=column, **more)


COPIED = use("a", copies=("out",))


@pytest.mark.parametrize(
    ("found", "payload", "forms"),
    [
        (plan(), {}, {"id": "clear"}),
        (plan(), {"private": ["a"]}, {"id": "clear"}),
        (plan(), {"private": ["a"], "trim": False}, {"id": "clear", "b": "clear", "n": "clear"}),
        (plan(), {"encrypt": ["a"]}, {"id": "clear"}),
        (
            plan(),
            {"encrypt": ["a"], "tokenize": ["b"], "trim": False},
            {"id": "clear", "a": "encrypted", "b": "tokens", "n": "clear"},
        ),
        (plan(needed="id a", predicates=(LIKE_A,)), {"private": ["a"]}, {"id": "clear", "a": "a constant"}),
        (plan(needed="id n", predicates=(ABOVE_N,)), {"private": ["n"]}, {"id": "clear", "n": "a constant"}),
        (plan(COPIED, needed="id a"), {"encrypt": ["a"]}, {"id": "clear", "a": "encrypted"}),
        (plan(COPIED, needed="id a"), {"tokenize": ["a"]}, {"id": "clear", "a": "tokens"}),
        (plan(COPIED, needed="id a", predicates=(LIKE_A,)), {"encrypt": ["a"]}, {"id": "clear", "a": "encrypted"}),
        (
            plan(use("a", compared_with=("b",)), use("b", compared_with=("a",)), needed="id a b"),
            {"tokenize": ["a", "b"]},
            {"id": "clear", "a": "tokens", "b": "tokens"},
        ),
        (plan(use("a", tested_for_null=True), needed="id a"), {"encrypt": ["a"]}, {"id": "clear", "a": "encrypted"}),
    ],
)
def test_what_is_sent_in_which_form(found: QueryPlan, payload: dict[str, Any], forms: dict[str, str]) -> None:
    judged = crossing(found, **payload)
    assert (judged.reason, dict(judged.forms), judged.sent.names) == ("", forms, list(forms))
    assert judged.applied_to(found) is found


@pytest.mark.parametrize(
    ("found", "payload", "reason"),
    [
        (plan(COPIED), {"private": ["a"]}, "its results contain a, which is private"),
        (plan(use("a", tested_for_null=True)), {"private": ["a"]}, "its plan reads a, which is private"),
        (plan(use("a", compared_with=("b",))), {"private": ["a"]}, "its plan reads a, which is private"),
        (plan(use("a", other="upper(a)")), {"private": ["a"]}, "its plan reads a, which is private: upper(a)"),
        (plan(use("a", other="upper(a)")), {"encrypt": ["a"]}, "its plan reads a, which is encrypted: upper(a)"),
        (plan(use("a", other="upper(a)")), {"tokenize": ["a"]}, "its plan reads a, which is tokenized: upper(a)"),
        (plan(predicates=(EITHER,)), {"private": ["a"]}, "no constant can take the place of a"),
        (plan(predicates=(LIKE_A,)), {"private": ["a"], "filter": False}, "on a, which is private, and filter is off"),
        (plan(predicates=(LIKE_A,)), {"encrypt": ["a"], "filter": False}, "is encrypted, and filter is off"),
        (plan(predicates=(EQUALS_A,)), {"encrypt": ["a"]}, "a condition on a that no value that is encrypted meets"),
        (plan(predicates=(EITHER,)), {"tokenize": ["a"]}, "a condition on a that no value that is tokenized meets"),
        (plan(use("a", compared_with=("b",))), {"encrypt": ["a", "b"]}, "compares a, which is encrypted, with b"),
        (plan(use("a", compared_with=("b",))), {"tokenize": ["a"]}, "compares a, which is tokenized, with b"),
        (
            plan(use("a", compared_with=("b",)), predicates=(LIKE_A,)),
            {"tokenize": ["a", "b"]},
            "both compares a, which is tokenized, and searches its text",
        ),
        (plan(uses=None), {"private": ["a"]}, "it is not known how its plan uses a, which is private"),
        (
            plan(COPIED, use("b", other="upper(b)")),
            {"private": ["a"], "encrypt": ["b"]},
            "its results contain a, which is private; its plan reads b, which is encrypted: upper(b)",
        ),
    ],
)
def test_what_keeps_a_query_at_home(found: QueryPlan, payload: dict[str, Any], reason: str) -> None:
    judged = crossing(found, **payload)
    assert reason in judged.reason
    kept = judged.applied_to(found)
    assert (kept.switchable, kept.reason) == (False, judged.reason)


def test_a_query_that_stays_for_another_reason_keeps_it() -> None:
    whole = QueryPlan(switch_class="whole", switchable=False, narrow=False, reason="it sorts", uses=(COPIED,))
    assert crossing(whole, private=["a"]).applied_to(whole).reason == "it sorts"


def test_a_plan_of_which_nothing_is_known_may_be_switched_if_nothing_is_protected() -> None:
    assert crossing(plan(uses=None)).reason == ""


def test_seals_follow_the_copies() -> None:
    found = plan(
        use("a", copies=("one", "two")), use("b", copies=("b",)), needed="id a b n", predicates=(LIKE_A, ABOVE_N)
    )
    judged = crossing(found, encrypt=["a"], tokenize=["b"], private=["n"])
    assert sorted(judged.sealed) == ["a", "b"]
    assert judged.affixes == {"a": Affixes("", "@x.org"), "b": Affixes()}
    of_columns, of_results = judged.seals(FieldKeys(bytes(32), "q"))
    assert (sorted(of_columns), sorted(of_results)) == (["a", "b", "n"], ["b", "one", "two"])
    sealed = of_columns["a"].seal(pa.array(["me@x.org"]))
    assert sealed[0].as_py().endswith("@x.org")
    assert of_results["one"].unseal(sealed).to_pylist() == of_results["two"].unseal(sealed).to_pylist() == ["me@x.org"]
    assert of_columns["n"].seal(pa.array([9], pa.int32())).to_pylist() == [4]
