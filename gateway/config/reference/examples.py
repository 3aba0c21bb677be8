"""An example of each key: the one that its model gives, or one that follows from its type."""

from __future__ import annotations

import json
import re
from typing import Any, Final

from gateway.config.reference.schema import UNITS, Node, options
from gateway.config.words import units

# What YAML would read as something else than this text, inside {} and [] too.
_PLAIN: Final = re.compile(r"[A-Za-z0-9./_-]([^\[\]{},#:\"]|:(?=\S)|\[(?=[\d*]+\]$)|(?<=[\d*])\]$)*")
EXAMPLES: Final = {unit.pattern: unit.example for unit in UNITS} | {units.PAUSES_PATTERN: units.PAUSES_EXAMPLE}
_WORDS: Final = ("true", "false", "null")


def example_of(node: Node) -> Any:
    """Return an example of a key's value; None if its value is a section, which has examples of its own."""
    if _shows_its_unit(node):
        return node["default"]
    for place in (node, *options(node)):
        if place.get("examples"):
            return place["examples"][0]
    for option in options(node):
        if "enum" in option:
            return next(value for value in option["enum"] if value != node.get("default"))
        if "const" in option:
            return option["const"]
        if option.get("type") == "boolean":
            return not node.get("default", False)
        if option.get("type") in ("integer", "number"):
            return node.get("default")
    return None


def _shows_its_unit(node: Node) -> bool:
    """Whether the default shows how a quantity is written; the example of its unit might be out of range."""
    quantities = [option.get("pattern") in EXAMPLES for option in options(node)]
    own = "examples" in node and node["examples"] != [EXAMPLES.get(node.get("pattern", ""))]
    return any(quantities) and not own and "default" in node


def flow(value: Any) -> str:
    """Return a value as YAML in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) and value >= 0.001 else f"{value}"
    text = str(value)
    number = re.fullmatch(r"[\d.eE+-]+", text)
    return text if _PLAIN.fullmatch(text) and text not in _WORDS and not number else json.dumps(text)
