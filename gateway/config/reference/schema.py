"""The JSON Schema of the config in the words of the file: its keys, and defaults as one would write them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from pydantic.fields import FieldInfo

from gateway.config.models import Config
from gateway.config.reference.meanings import key_of, meaning_of
from gateway.config.words import units
from gateway.config.words.fields import Section

Node = dict[str, Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
UNITS: Final = (units.DURATION, units.SIZE, units.RATE, units.LINK_RATE, units.SHARE)


def _written_pauses(pauses_s: tuple[float, float]) -> str:
    return "..".join(map(units.DURATION.format, pauses_s))


_WRITTEN: Final[dict[str, Callable[[Any], str]]] = {
    **{unit.pattern: unit.format for unit in UNITS},
    units.PAUSES_PATTERN: _written_pauses,
}


def json_schema() -> Node:
    """Return the JSON Schema of the config file."""
    schema = Config.model_json_schema()
    for name, node in sections(schema).items():
        _describe(node, section_named(name))
    return {"$schema": DIALECT, **schema}


def sections(schema: Node) -> dict[str, Node]:
    """Return the node of each section by the name of its model, the whole file first."""
    return {Config.__name__: schema, **schema["$defs"]}


def section_named(name: str) -> type[Section]:
    """Return the model of a section: the first with this name, since checks make partial models with any name."""
    return next(model for model in _below(Section) if model.__name__ == name)


def options(node: Node) -> Iterator[Node]:
    """Yield what a node allows: each of its alternatives, or the node itself."""
    alternatives = [*node.get("anyOf", ()), *node.get("oneOf", ())]
    if not alternatives:
        yield node
    for alternative in alternatives:
        yield from options(alternative)


def _below(model: type[Section]) -> Iterator[type[Section]]:
    for below in model.__subclasses__():
        yield below
        yield from _below(below)


def _describe(node: Node, section: type[Section]) -> None:
    meaning = meaning_of(section)
    node["description"] = meaning.summary
    for name, field in section.model_fields.items():
        key = key_of(name, field)
        described = node["properties"][key]
        described.pop("title", None)
        described["description"] = meaning.keys[key]
        default = _default(field, described)
        described.pop("default", None)
        if default is not None:
            described["default"] = default


def _default(field: FieldInfo, node: Node) -> Any:
    """Return a field's default as it is written in the file; None if there is none."""
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "default" in extra:
        return extra["default"]
    value = None if field.is_required() else field.get_default(call_default_factory=True)
    return written(value, node)


def written(value: Any, node: Node) -> Any:
    """Return a value of a loaded config as one would write it where ``node`` is the schema."""
    if isinstance(value, Section):
        model = type(value)
        return {key_of(n, field): getattr(value, n) for n, field in model.model_fields.items() if field.is_required()}
    if isinstance(value, Path):
        return str(value)
    patterns = [option["pattern"] for option in options(node) if "pattern" in option]
    if isinstance(value, int | float | tuple) and not isinstance(value, bool):
        for pattern in patterns:
            if pattern in _WRITTEN:
                return _WRITTEN[pattern](value)
    if isinstance(value, tuple | list):
        return [written(item, node.get("items", {})) for item in value]
    return value
