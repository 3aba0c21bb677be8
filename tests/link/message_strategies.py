"""Random values of every message, from the annotations of the structs themselves."""

from __future__ import annotations

import types
import typing
from typing import Any, Literal, Union

import msgspec
from hypothesis import strategies as st

from infra.messages import AnyMessage

MESSAGE_TYPES: tuple[type[AnyMessage], ...] = typing.get_args(AnyMessage)

_PLAIN: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bool: st.booleans(),
    bytes: st.binary(max_size=50),
    type(None): st.none(),
}


def values_of(annotation: Any, depth: int = 2) -> st.SearchStrategy[Any]:
    """Return a strategy for a field's type; structs that contain themselves end after ``depth``."""
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.one_of([values_of(each, depth) for each in arguments])
    if origin is list:
        return st.lists(values_of(arguments[0], depth), max_size=3)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0], depth), values_of(arguments[1], depth), max_size=3)
    if origin is tuple and arguments[-1] is not Ellipsis:
        return st.tuples(*(values_of(each, depth) for each in arguments))
    if origin is tuple:
        if depth == 0:
            return st.just(())
        return st.lists(values_of(arguments[0], depth - 1), max_size=3).map(tuple)
    assert issubclass(annotation, msgspec.Struct)
    hints = typing.get_type_hints(annotation)
    fields = {name: values_of(hints[name], depth) for name in annotation.__struct_fields__}
    return st.builds(annotation, **fields)


any_message: st.SearchStrategy[AnyMessage] = st.one_of([values_of(each) for each in MESSAGE_TYPES])
