"""Columns as bytes without Arrow's metadata: numbers as small offsets, equal texts once; and back from untrusted bytes.

A body begins with one byte: 1 if the column has nulls, whose bitmap follows (bit 1: there is a value). Then come the n
values that are there:

- Booleans: a bitmap.
- Whole numbers, dates and timestamps: *numbers* (see ``infra.payload.numbers``).
- Floats: one byte, the number of decimals, and their values times that power of ten as numbers; or 255, and the values.
- Texts and bytes: one byte. 0: their lengths as numbers, then all bytes. 1: the count of the distinct values, of each
  value its place among them as numbers, then the distinct values as with 0.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from infra.payload.errors import PayloadError
from infra.payload.numbers import Int64Array, Reader, put_count, put_numbers
from infra.payload.trim import AllocationBudget

Budgets: TypeAlias = tuple[AllocationBudget, ...]

_DECIMALS_MOST: Final = 9
_AS_THEY_ARE: Final = 255
_EXACT: Final = float(1 << 53)
_FEW: Final = 8
_SAMPLE: Final = 64
_OFFSETS_MOST: Final = (1 << 31) - 1

_FLOATS: Final = (pa.float32(), pa.float64())
_TEXTS: Final = (pa.string(), pa.binary())
_INTEGERS: Final = {pa.int8(): np.int8, pa.int16(): np.int16, pa.int32(): np.int32, pa.int64(): np.int64}


def suits(kind: pa.DataType) -> bool:
    """Return whether columns of a type have a shape; nested types, decimals and nulls have none."""
    known = pa.types.is_boolean(kind) or pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    return known or kind in _FLOATS or kind in _TEXTS or kind in _INTEGERS


class Shape(NamedTuple):
    """A column as bytes.

    Attributes:
        body: the bytes.
        growth_bytes: how much memory ``read_shape`` counts beyond them.
    """

    body: memoryview
    growth_bytes: int


def _numbers_bytes(count: int) -> int:
    return 8 * count


# -------------------------------------------------------------------------------------------------------------- writing


def write_shape(column: pa.Array) -> Shape:
    """Return the shape of a column, whose type must have one."""
    growth_bytes = _numbers_bytes(len(column))
    parts: list[bytes] = [b"\1" if column.null_count else b"\0"]
    if column.null_count:
        parts.append(_bits(column.is_valid()))
        column = column.drop_null()
    kind = column.type
    if pa.types.is_boolean(kind):
        parts.append(_bits(column))
    elif kind in _TEXTS:
        growth_bytes += _put_texts(parts, column)
    elif kind in _FLOATS:
        _put_floats(parts, column.to_numpy())
    else:
        put_numbers(parts, _whole(column))
    return Shape(memoryview(b"".join(parts)), growth_bytes)


def _bits(flags: pa.BooleanArray) -> bytes:
    return np.packbits(flags.to_numpy(zero_copy_only=False), bitorder="little").tobytes()


def _whole(column: pa.Array) -> Int64Array:
    narrow = pa.int32() if pa.types.is_date32(column.type) else column.type
    return np.asarray(column.view(narrow if narrow in _INTEGERS else pa.int64()).to_numpy(), dtype=np.int64)


def _put_floats(parts: list[bytes], values: npt.NDArray[np.floating[Any]]) -> None:
    for sample in (_FEW, _SAMPLE):
        decimals = max((_decimals(str(value)) for value in values[:sample]), default=0)
        scaled = _scaled(values, decimals) if decimals <= _DECIMALS_MOST else None
        if scaled is not None:
            parts.append(bytes([decimals]))
            if put_numbers(parts, scaled, narrower_than=values.itemsize):
                return
            parts.pop()
            break
    parts += [bytes([_AS_THEY_ARE]), values.tobytes()]


def _decimals(value: str) -> int:
    """Return how many decimals a float has in its shortest form; more than there may be if it has no such form."""
    return _AS_THEY_ARE if "e" in value or "n" in value else len(value) - 1 - value.index(".") - value.endswith(".0")


def _scaled(values: npt.NDArray[np.floating[Any]], decimals: int) -> Int64Array | None:
    """Return the values times a power of ten, if they come back from that bit by bit."""
    with np.errstate(all="ignore"):
        scaled = np.rint(values.astype(np.float64) * 10.0**decimals)
        if not (np.abs(scaled) < _EXACT).all():
            return None
        whole = scaled.astype(np.int64)  # without -0.0
        back = (whole / 10.0**decimals).astype(values.dtype)
    return whole if back.tobytes() == values.tobytes() else None


def _put_texts(parts: list[bytes], column: pa.Array) -> int:
    """Append texts; return how many bytes they have once those that are equal are copied."""
    if len(column) <= _SAMPLE or len(column[:_SAMPLE].unique()) * 2 <= _SAMPLE:
        encoded = column.dictionary_encode()
        if 0 < len(encoded.dictionary) * 2 <= len(column):
            parts.append(b"\1")
            put_count(parts, len(encoded.dictionary))
            put_numbers(parts, encoded.indices.to_numpy().astype(np.int64))
            _put_plain(parts, encoded.dictionary)
            offsets = _offsets(column)
            return int(offsets[-1] - offsets[0])
    parts.append(b"\0")
    _put_plain(parts, column)
    return 0


def _put_plain(parts: list[bytes], column: pa.Array) -> None:
    offsets, text = _offsets(column), column.buffers()[2]
    put_numbers(parts, (offsets[1:] - offsets[:-1]).astype(np.int64))
    if len(column) and text is not None:
        parts.append(memoryview(text)[int(offsets[0]) : int(offsets[-1])].tobytes())


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    """Return where each text without nulls begins, and where the last one ends."""
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


# -------------------------------------------------------------------------------------------------------------- reading


def read_shape(body: bytes | memoryview, kind: pa.DataType, rows: int, budgets: Budgets) -> pa.Array:
    """Return the column of ``rows`` values that a body holds, validated in full.

    Args:
        body: from the other site.
        kind: of the values.
        rows: how many values there must be.
        budgets: pay for the memory that this takes, before it is taken.

    Raises:
        PayloadError: the body does not hold them, or a budget has no room.
    """
    if not suits(kind):
        raise PayloadError(f"{kind} has no shape")
    reader = Reader(memoryview(body))
    for budget in budgets:
        budget.take(_numbers_bytes(rows), f"{rows} x {kind}")
    valid = _flags(reader, rows) if reader.byte() else None
    count = rows if valid is None else int(np.count_nonzero(valid))
    column = _values(reader, kind, count, budgets)
    reader.end()
    if valid is None:
        return column
    places = pa.array(np.cumsum(valid) - 1, mask=~valid)
    return column.take(places)


def _flags(reader: Reader, count: int) -> npt.NDArray[np.bool_]:
    packed = np.frombuffer(reader.take(-(-count // 8)), np.uint8)
    return np.unpackbits(packed, count=count, bitorder="little").astype(np.bool_)


def _values(reader: Reader, kind: pa.DataType, count: int, budgets: Budgets) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array(_flags(reader, count))
    if kind in _TEXTS:
        return _texts(reader, kind, count, budgets)
    if kind in _FLOATS:
        return pa.array(_floats(reader, kind.to_pandas_dtype(), count), kind)
    narrow = pa.int32() if pa.types.is_date32(kind) else kind
    numbers, exact = reader.numbers(count), _INTEGERS.get(narrow, np.int64)
    values = numbers.astype(exact)
    if not np.array_equal(values, numbers):
        raise PayloadError(f"a number is beyond {kind}")
    return pa.array(values).view(kind)


def _floats(reader: Reader, exact: type[np.floating[Any]], count: int) -> npt.NDArray[np.floating[Any]]:
    decimals = reader.byte()
    if decimals == _AS_THEY_ARE:
        return np.frombuffer(reader.take(count * np.dtype(exact).itemsize), exact).copy()
    if decimals > _DECIMALS_MOST:
        raise PayloadError(f"floats have {decimals} decimals, more than {_DECIMALS_MOST}")
    return (reader.numbers(count) / 10.0**decimals).astype(exact)


def _texts(reader: Reader, kind: pa.DataType, count: int, budgets: Budgets) -> pa.Array:
    form = reader.byte()
    if form == 0:
        return _plain(reader, kind, count)
    distinct = reader.count(count)
    codes = reader.numbers(count)
    if count and (int(codes.min()) < 0 or int(codes.max()) >= distinct):
        raise PayloadError(f"a text is not among the {distinct} that came")
    values = _plain(reader, kind, distinct)
    offsets = _offsets(values)
    copied_bytes = int((offsets[1:] - offsets[:-1])[codes].sum(dtype=np.int64))
    if copied_bytes > _OFFSETS_MOST:
        raise PayloadError(f"a column of {copied_bytes} bytes of text is too long")
    for budget in budgets:
        budget.take(copied_bytes, f"{copied_bytes} bytes of text")
    return values.take(pa.array(codes))


def _plain(reader: Reader, kind: pa.DataType, count: int) -> pa.Array:
    lengths, text = reader.numbers(count), reader.rest()
    if count and (int(lengths.min()) < 0 or int(lengths.max()) > len(text)):
        raise PayloadError(f"a text has another length than 0 to {len(text)} bytes")
    if int(lengths.sum()) != len(text):
        raise PayloadError(f"the texts have {int(lengths.sum())} bytes instead of {len(text)}")
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    column = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(text)])
    try:
        column.validate(full=True)
    except pa.ArrowException as error:
        raise PayloadError(f"the body does not hold {count} x {kind}: {error}") from error
    return column
