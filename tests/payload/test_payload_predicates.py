import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infra.messages import Predicate, PredicateOp
from infra.payload import CodecPolicy, Encoder, keep_mask, kept_rows, why_not_early

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("small", pa.int8()),
        ("long", pa.int64()),
        ("flag", pa.bool_()),
        ("deep", pa.struct([("in", pa.struct([("text", pa.string()), ("n", pa.int32())]))])),
        ("list", pa.list_(pa.string())),
        ("ratio", pa.float64()),
    ]
)
TEXTS = st.sampled_from(["", "a", "A", "ab", "aé", "é", "b\U0001f600", "\uffff", "a\0", "@enron.com", "x@enron.com"])
TEXT_COLUMNS = [("text",), ("deep", "in", "text")]
NUMBER_COLUMNS = [("small",), ("long",), ("deep", "in", "n")]
DOUBLES = [0.0, -0.0, 1.0, 1.0000000000000002, -2.5, math.inf, -math.inf]
NUMBERS = st.sampled_from([0, 1, -1, 127, -128, 128, 2**31, -(2**31), 2**63 - 1, -(2**63), 2**63, -(2**70)])


def rows() -> st.SearchStrategy[dict[str, Any]]:
    deep = st.none() | st.fixed_dictionaries({"text": st.none() | TEXTS, "n": st.none() | st.integers(-2, 2)})
    return st.fixed_dictionaries(
        {
            "text": st.none() | TEXTS,
            "small": st.none() | st.integers(-128, 127),
            "long": st.none() | st.sampled_from([0, 1, -(2**63), 2**63 - 1, 2**53 + 1, 2**53]),
            "flag": st.none() | st.booleans(),
            "deep": st.none() | st.fixed_dictionaries({"in": deep}),
            "list": st.none() | st.lists(TEXTS, max_size=1),
            "ratio": st.sampled_from([None, *DOUBLES, math.nan]),
        }
    )


def leaves() -> st.SearchStrategy[Predicate]:
    def leaf(ops: list[PredicateOp], columns: list[tuple[str, ...]], value: st.SearchStrategy[Any]) -> Any:
        return st.builds(Predicate, op=st.sampled_from(ops), column=st.sampled_from(columns), value=value)

    order: list[PredicateOp] = ["eq", "lt", "le", "gt", "ge"]
    every = [*TEXT_COLUMNS, *NUMBER_COLUMNS, ("flag",), ("deep",), ("deep", "in"), ("list",), ("ratio",)]
    return st.one_of(
        leaf(["is_null", "not_null"], every, st.none()),
        leaf([*order, "starts_with", "ends_with", "contains"], TEXT_COLUMNS, TEXTS),
        leaf(order, NUMBER_COLUMNS, NUMBERS),
        leaf(order, [("flag",)], st.booleans()),
        leaf(order, [("ratio",)], st.sampled_from(DOUBLES)),
        leaf(["in"], TEXT_COLUMNS, st.lists(TEXTS, min_size=1, max_size=3)),
        leaf(["in"], NUMBER_COLUMNS, st.lists(NUMBERS, min_size=1, max_size=3)),
        leaf(["in"], [("flag",)], st.lists(st.booleans(), min_size=1, max_size=2)),
    )


def trees() -> st.SearchStrategy[Predicate]:
    def extend(inner: st.SearchStrategy[Predicate]) -> st.SearchStrategy[Predicate]:
        several = st.lists(inner, min_size=1, max_size=3).map(tuple)
        return st.builds(Predicate, op=st.sampled_from(["and", "or"]), children=several) | st.builds(
            Predicate, op=st.just("not"), children=inner.map(lambda child: (child,))
        )

    return st.recursive(leaves(), extend, max_leaves=6)


def spark_key(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


SIMPLE: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda x, v: x == v,
    "lt": lambda x, v: x < v,
    "le": lambda x, v: x <= v,
    "gt": lambda x, v: x > v,
    "ge": lambda x, v: x >= v,
    "in": lambda x, v: x in v,
    "starts_with": lambda x, v: x.startswith(v),
    "ends_with": lambda x, v: x.endswith(v),
    "contains": lambda x, v: v in x,
}


def truth(row: dict[str, Any], predicate: Predicate) -> bool | None:
    """An independent implementation of SQL's three-valued logic, value by value."""
    if predicate.op == "not":
        inner = truth(row, predicate.children[0])
        return None if inner is None else not inner
    if predicate.op in ("and", "or"):
        decisive = predicate.op == "or"
        found = [truth(row, child) for child in predicate.children]
        if decisive in found:
            return decisive
        return None if None in found else not decisive
    value: Any = row
    for name in predicate.column:
        value = None if value is None else value[name]
    if predicate.op in ("is_null", "not_null"):
        return (value is None) == (predicate.op == "is_null")
    if value is None:
        return None
    if isinstance(value, float) and math.isnan(value):
        return predicate.op in ("gt", "ge")  # above all others
    literal = predicate.value
    literal = [spark_key(v) for v in literal] if isinstance(literal, list) else spark_key(literal)
    return SIMPLE[predicate.op](spark_key(value), literal)


@given(st.lists(rows(), max_size=12), st.lists(trees(), max_size=3), st.data())
@settings(max_examples=500, deadline=None)
def test_a_row_is_kept_when_every_predicate_is_true(
    table: list[dict[str, Any]], predicates: list[Predicate], data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(table)))
    batch = pa.RecordBatch.from_pylist(table, schema=SCHEMA).slice(start)
    wanted = [all(truth(row, p) is True for p in predicates) for row in table[start:]]
    mask = keep_mask(batch, predicates)
    assert mask.null_count == 0
    assert mask.to_pylist() == wanted
    assert kept_rows(batch, predicates).tolist() == np.flatnonzero(wanted).tolist()
    encoded = Encoder(SCHEMA, predicates=tuple(predicates), codecs=CodecPolicy()).encode(batch)
    assert encoded.rows == sum(wanted)


def test_strings_compare_as_unsigned_bytes_not_as_utf16() -> None:
    batch = pa.RecordBatch.from_pylist([{"text": "\U0001f600"}, {"text": "\uffff"}], schema=SCHEMA)
    above = Predicate(op="gt", column=("text",), value="\uffff")
    assert kept_rows(batch, [above]).tolist() == [0]


def test_a_field_of_a_null_struct_is_null_even_where_bytes_lie_under_it() -> None:
    hidden = pa.StructArray.from_arrays([pa.array([1, 2])], names=["n"], mask=pa.array([True, False]))
    batch = pa.record_batch([hidden], names=["s"])
    assert kept_rows(batch, [Predicate(op="not_null", column=("s", "n"))]).tolist() == [1]
    assert kept_rows(batch, [Predicate(op="ge", column=("s", "n"), value=0)]).tolist() == [1]


def one(op: PredicateOp, column: str = "text", **more: Any) -> Predicate:
    return Predicate(op=op, column=tuple(column.split(".")) if column else (), **more)


@pytest.mark.parametrize(
    ("predicate", "reason"),
    [
        (one("eq", "nope", value="x"), "'nope'"),
        (one("eq", "", value="x"), "''"),
        (one("is_null", "deep.in.nope"), "'deep.in.nope'"),
        (one("is_null", "list.element"), "'list.element'"),
        (one("eq", "long", value="x"), "'x' is not"),
        (one("eq", "long", value=True), "True is not"),
        (one("eq", "flag", value=1), "1 is not"),
        (one("eq", "text", value=1), "1 is not"),
        (one("gt", "ratio", value=1), "double"),
        (one("gt", "ratio", value=math.nan), "nan is not"),
        (one("in", "ratio", value=[1.0]), "needs no doubles"),
        (one("gt", "long", value=1.0), "1.0 is not"),
        (one("eq", "list", value="x"), "list"),
        (one("contains", "long", value="x"), "needs a string"),
        (one("eq"), "single value"),
        (one("eq", value=["x"]), "single value"),
        (one("in", value=[]), "not empty"),
        (one("in", value="x"), "list"),
        (one("in", value=["x", 1]), "1 is not"),
        (Predicate(op="and"), "0 children"),
        (Predicate(op="not", children=(one("is_null"), one("is_null"))), "2 children"),
        (Predicate(op="or", children=(one("is_null"), one("eq", value=3))), "3 is not"),
    ],
)
def test_a_predicate_that_cannot_be_early_says_why_and_is_refused(predicate: Predicate, reason: str) -> None:
    assert reason in why_not_early(SCHEMA, predicate)
    with pytest.raises(ValueError, match=re.escape(why_not_early(SCHEMA, predicate))):
        Encoder(SCHEMA, predicates=(predicate,), codecs=CodecPolicy())
    with pytest.raises(ValueError, match=re.escape(why_not_early(SCHEMA, predicate))):
        keep_mask(pa.RecordBatch.from_pylist([], SCHEMA), [predicate])
