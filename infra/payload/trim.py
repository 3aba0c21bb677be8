"""Leaves out the struct members that a query does not read; the other side fills them with nulls.

One byte (1 or 0) for each struct member says whether it is kept, in the order of a walk from the top; the members below
one that is left out have no byte. Both sides know the full type, so no type ever crosses the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

from infra.payload.errors import PayloadError

WHOLE = b""
"""Means that all of a field is kept."""


class AllocationBudget:
    """Bytes that one payload may still make this process allocate."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._left_bytes = limit_bytes

    def take(self, count: int, what: str) -> None:
        """Spend ``count`` bytes, or raise PayloadError."""
        self._left_bytes -= count
        if self._left_bytes < 0:
            raise PayloadError(f"{what} would exceed the payload's limit of {self._limit_bytes} bytes")


def kept_members(full: pa.DataType, needed: pa.DataType, path: str) -> bytes:
    """Return which members of ``full`` the type ``needed`` has, ``WHOLE`` if it has all of them.

    Raises:
        ValueError: ``needed`` is not ``full`` with members left out.
    """
    kept = bytes(_compare(full, needed, path))
    return WHOLE if all(kept) else kept


def _compare(full: pa.DataType, needed: pa.DataType, path: str) -> Iterator[int]:
    if pa.types.is_struct(full) and pa.types.is_struct(needed):
        unknown = {member.name for member in needed} - {member.name for member in full}
        if unknown:
            raise ValueError(f"needed column {path} has members that the input does not have: {sorted(unknown)}")
        for member in full:
            at = needed.get_field_index(member.name)
            yield int(at >= 0)
            if at >= 0:
                yield from _compare(member.type, needed.field(at).type, f"{path}.{member.name}")
    elif pa.types.is_list(full) and pa.types.is_list(needed):
        yield from _compare(full.value_type, needed.value_type, f"{path}.element")
    elif pa.types.is_map(full) and pa.types.is_map(needed):
        yield from _compare(full.key_type, needed.key_type, f"{path}.key")
        yield from _compare(full.item_type, needed.item_type, f"{path}.value")
    elif not full.equals(needed):
        raise ValueError(f"needed column {path} is {needed}, but the input has {full}")


def pruned_type(full: pa.DataType, kept: bytes) -> pa.DataType:
    """Return ``full`` with only the members kept; PayloadError if ``kept`` does not fit the type."""
    if kept == WHOLE:
        return full
    bits = iter(kept)
    try:
        pruned = _pruned(full, bits)
    except StopIteration as error:
        raise PayloadError(f"the kept members of {full} are truncated") from error
    if next(bits, None) is not None or max(kept) > 1:
        raise PayloadError(f"the kept members do not fit {full}")
    return pruned


def _pruned(full: pa.DataType, bits: Iterator[int]) -> pa.DataType:
    if pa.types.is_struct(full):
        return pa.struct([member.with_type(_pruned(member.type, bits)) for member in full if next(bits)])
    if pa.types.is_list(full):
        return pa.list_(full.value_field.with_type(_pruned(full.value_type, bits)))
    if pa.types.is_map(full):
        key = full.key_field.with_type(_pruned(full.key_type, bits))
        return pa.map_(key, full.item_field.with_type(_pruned(full.item_type, bits)))
    return full


def prune(array: pa.Array, kept: bytes) -> pa.Array:
    """Return ``array`` with only the members kept; the validity of structs, lists and maps stays."""
    return array if kept == WHOLE else _prune(array, iter(kept))


def _prune(array: pa.Array, bits: Iterator[int]) -> pa.Array:
    kind = array.type
    if pa.types.is_struct(kind):
        names, members = [], []
        for index in range(kind.num_fields):
            if next(bits):
                member = _prune(array.field(index), bits)
                names.append(kind.field(index).with_type(member.type))
                members.append(member)
        return _struct(pa.struct(names), array, members)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _with_children(array, lambda child: _prune(child, bits))
    return array


def restore(array: pa.Array, full: pa.DataType, kept: bytes, budget: AllocationBudget) -> pa.Array:
    """Return ``array``, which holds the members kept, as ``full`` with nulls for the others.

    ``array`` must have been validated in full. Raises PayloadError if the nulls do not fit ``budget``.
    """
    return array if kept == WHOLE else _restore(array, full, iter(kept), budget)


def _restore(array: pa.Array, full: pa.DataType, bits: Iterator[int], budget: AllocationBudget) -> pa.Array:
    if pa.types.is_struct(full):
        members, at = [], 0
        for member in full:
            if next(bits):
                members.append(_restore(array.field(at), member.type, bits, budget))
                at += 1
            else:
                members.append(null_column(len(array), member.type, budget))
        return _struct(full, array, members)
    if pa.types.is_list(full):
        return _with_children(array, lambda child: _restore(child, full.value_type, bits, budget), full)
    if pa.types.is_map(full):
        types = iter((full.key_type, full.item_type))
        return _with_children(array, lambda child: _restore(child, next(types), bits, budget), full)
    return array


def _struct(kind: pa.DataType, like: pa.Array, members: list[pa.Array]) -> pa.Array:
    """Return a struct array of ``members`` whose nulls are those of ``like``."""
    validity = None
    if like.null_count:
        # Computed anew: the bitmap of a slice begins somewhere inside a byte, the members do not.
        validity = pc.invert(pc.is_null(like)).buffers()[1]
    return pa.Array.from_buffers(kind, len(like), [validity], like.null_count, 0, members)


def _with_children(
    array: pa.Array, change: Callable[[pa.Array], pa.Array], full: pa.DataType | None = None
) -> pa.Array:
    """Return a list or map array with new values (or keys, then items) and everything else unchanged."""
    validity, offsets = array.buffers()[:2]
    if pa.types.is_list(array.type):
        values = change(array.values)
        kind = full or pa.list_(array.type.value_field.with_type(values.type))
    else:
        keys, items = change(array.keys), change(array.items)
        kind = full or pa.map_(array.type.key_field.with_type(keys.type), array.type.item_field.with_type(items.type))
        entries = pa.struct([kind.key_field, kind.item_field])
        values = pa.Array.from_buffers(entries, len(keys), [None], 0, 0, [keys, items])
    return pa.Array.from_buffers(kind, len(array), [validity, offsets], array.null_count, array.offset, [values])


def null_column(rows: int, kind: pa.DataType, budget: AllocationBudget) -> pa.Array:
    """Return ``rows`` nulls of a type, if they fit ``budget``."""
    budget.take(rows * null_bytes(kind), f"{rows} nulls of {kind}")
    return pa.nulls(rows, kind)


def null_bytes(kind: pa.DataType) -> int:
    """Return how many bytes one null of a type takes, rounded up, and at least one."""
    if pa.types.is_struct(kind):
        return 1 + sum(null_bytes(member.type) for member in kind)
    if pa.types.is_null(kind):
        return 1
    try:
        return 1 + (int(kind.bit_width) + 7) // 8
    except ValueError:
        # Strings, binaries, lists and maps: an offset of 4 or 8 bytes, counted as 8.
        return 9


def weightless(kind: pa.DataType) -> bool:
    """Return whether a type has values that need no bytes, so that a body can claim any number of them."""
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields):
        return True
    return any(weightless(kind.field(index).type) for index in range(kind.num_fields))


def charge_weightless(array: pa.Array, budget: AllocationBudget) -> None:
    """Spend a byte for each value inside ``array`` that came without any."""
    kind = array.type
    if not weightless(kind):
        return
    if pa.types.is_null(kind) or (pa.types.is_struct(kind) and not kind.num_fields):
        budget.take(len(array), f"{len(array)} values of {kind}")
    elif pa.types.is_struct(kind):
        for index in range(kind.num_fields):
            charge_weightless(array.field(index), budget)
    elif pa.types.is_map(kind):
        charge_weightless(array.keys, budget)
        charge_weightless(array.items, budget)
    else:
        charge_weightless(array.values, budget)
