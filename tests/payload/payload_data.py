"""Random schemas, batches and trimmings of Spark's kinds, and an independent computation of the expected result."""

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

NAMES = ("a", "b", "c", "naïve name")


def leaf_types() -> st.SearchStrategy[pa.DataType]:
    return st.sampled_from(
        [
            pa.string(),
            pa.binary(),
            pa.int8(),
            pa.int16(),
            pa.int32(),
            pa.int64(),
            pa.float32(),
            pa.float64(),
            pa.bool_(),
            pa.date32(),
            pa.timestamp("us", "UTC"),
            pa.timestamp("us"),
            pa.decimal128(10, 2),
            pa.decimal128(38, 10),
            pa.null(),
        ]
    )


def key_types() -> st.SearchStrategy[pa.DataType]:
    return st.sampled_from([pa.string(), pa.int32(), pa.struct([("k", pa.int64()), ("l", pa.string())])])


def types() -> st.SearchStrategy[pa.DataType]:
    def extend(inner: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
        members = st.lists(inner, min_size=0, max_size=3)
        return st.one_of(
            inner.map(lambda kind: pa.list_(pa.field("element", kind))),
            members.map(lambda kinds: pa.struct(list(zip(NAMES, kinds, strict=False)))),
            st.builds(pa.map_, key_types(), inner),
        )

    return st.recursive(leaf_types(), extend, max_leaves=5)


def schemas() -> st.SearchStrategy[pa.Schema]:
    return st.lists(types(), min_size=1, max_size=4).map(
        lambda kinds: pa.schema(list(zip(NAMES, kinds, strict=False)), metadata={"made": "for a test"})
    )


def decimals(precision: int, scale: int) -> st.SearchStrategy[decimal.Decimal]:
    limit = 10**precision - 1
    return st.integers(-limit, limit).map(lambda unscaled: decimal.Decimal(f"{unscaled}E-{scale}"))


LEAF_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.string(): st.text(max_size=12),
    pa.binary(): st.binary(max_size=12),
    pa.int8(): st.integers(-(2**7), 2**7 - 1),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.bool_(): st.booleans(),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.datetimes(timezones=st.just(dt.UTC)),
    pa.timestamp("us"): st.datetimes(),
    pa.decimal128(10, 2): decimals(10, 2),
    pa.decimal128(38, 10): decimals(38, 10),
    pa.null(): st.none(),
}


def values(kind: pa.DataType, *, nullable: bool = True) -> st.SearchStrategy[Any]:
    if pa.types.is_struct(kind):
        inner: st.SearchStrategy[Any] = st.fixed_dictionaries({f.name: values(f.type) for f in kind})
    elif pa.types.is_list(kind):
        inner = st.lists(values(kind.value_type), max_size=3)
    elif pa.types.is_map(kind):
        inner = st.lists(st.tuples(values(kind.key_type, nullable=False), values(kind.item_type)), max_size=3)
    else:
        inner = LEAF_VALUES[kind]
    return st.none() | inner if nullable else inner


@st.composite
def batches(draw: st.DrawFn, schema: pa.Schema, max_rows: int = 12) -> pa.RecordBatch:
    """A batch, usually a slice of a longer one."""
    rows = draw(st.integers(0, max_rows))
    columns = [pa.array(draw(st.lists(values(f.type), min_size=rows, max_size=rows)), f.type) for f in schema]
    offset = draw(st.integers(0, rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema).slice(offset, draw(st.integers(0, rows - offset)))


@st.composite
def trimmed(draw: st.DrawFn, kind: pa.DataType) -> pa.DataType:
    """The same type, with members of its structs left out."""
    if pa.types.is_struct(kind):
        kept = [member for member in kind if draw(st.booleans())]
        return pa.struct([member.with_type(draw(trimmed(member.type))) for member in kept])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(draw(trimmed(kind.value_type))))
    if pa.types.is_map(kind):
        return pa.map_(draw(trimmed(kind.key_type)), draw(trimmed(kind.item_type)))
    return kind


@st.composite
def needed(draw: st.DrawFn, schema: pa.Schema) -> pa.Schema:
    """Some columns of a schema in any order, with members left out."""
    kept = [field.with_type(draw(trimmed(field.type))) for field in schema if draw(st.booleans())]
    return pa.schema(draw(st.permutations(kept)))


def project(value: Any, full: pa.DataType, part: pa.DataType) -> Any:
    """The expected value (as ``to_pylist`` returns it) when only ``part`` of its type is sent."""
    if value is None:
        return None
    if pa.types.is_struct(full):
        kept = {member.name: member.type for member in part}
        return {m.name: project(value[m.name], m.type, kept[m.name]) if m.name in kept else None for m in full}
    if pa.types.is_list(full):
        return [project(item, full.value_type, part.value_type) for item in value]
    if pa.types.is_map(full):
        return [
            (project(k, full.key_type, part.key_type), project(v, full.item_type, part.item_type)) for k, v in value
        ]
    return value


def expected(batch: pa.RecordBatch, part: pa.Schema) -> list[dict[str, Any]]:
    kept = {field.name: field.type for field in part}
    return [
        {f.name: project(row[f.name], f.type, kept[f.name]) if f.name in kept else None for f in batch.schema}
        for row in batch.to_pylist()
    ]


def same(left: object, right: object) -> bool:
    """Equality in which NaN equals NaN and 0.0 is not -0.0: the text of the values."""
    return repr(left) == repr(right)


def mails(count: int, seed: int = 1) -> list[str]:
    """Text with mail's skewed frequencies of words, about 1.3 kB each."""
    random = np.random.default_rng(seed)
    words = np.array([f"w{i:x}{'ing' * (i % 3)}" for i in range(4000)])
    weights = 1 / np.arange(1, len(words) + 1)
    return [" ".join(random.choice(words, 220, p=weights / weights.sum())) for _ in range(count)]


def mail_batch(count: int, seed: int = 1) -> pa.RecordBatch:
    bodies = mails(count, seed)
    columns = [pa.array(range(count), pa.int64()), pa.array([b[:30] for b in bodies]), pa.array(bodies)]
    return pa.RecordBatch.from_arrays(columns, names=["id", "subject", "body"])
