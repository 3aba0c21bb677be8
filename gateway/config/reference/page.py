"""The page docs/config.md: every key of the config with its value, its default, an example and its meaning."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.config.reference.examples import example_of, flow
from gateway.config.reference.schema import UNITS, Node, json_schema, options, sections
from gateway.config.words import units

_DOCUMENT: Final = re.compile(r"\bdocs/([\w-]+\.md)")
_NOUNS: Final = {
    units.DURATION.pattern: "[duration](#quantities)",
    units.SIZE.pattern: "[size](#quantities)",
    units.RATE.pattern: "[rate](#quantities)",
    units.LINK_RATE.pattern: "[rate of a link](#quantities)",
    units.SHARE.pattern: "[share](#quantities)",
    units.PAUSES_PATTERN: "two [durations](#quantities)",
}
_PLAIN: Final = {"boolean": "`true` or `false`", "integer": "whole number", "number": "number", "string": "text"}
_FORMATS: Final = {"path": "path", "password": "text, kept secret", "ipvanyaddress": "IP address"}
_LEAVES_CASE: Final = re.compile(r"`|[\w ]+:")
_HEAD: Final = """\
# Every key of the config

<!-- Made by `make docs` from the models in gateway/config. Change them, not this page. -->

A config is one YAML file. [The first steps](start.md) build one. `spillway check CONFIG` says what is wrong with it,
and what would happen. Unknown keys are errors. `spillway schema > spillway.schema.json` writes a JSON Schema, with
which editors complete and check keys while you type.

- **Names.** `NAME` stands for a name that you choose.
- **Paths** that are relative begin at the folder of the config file.
- **Variables.** `${VAR}` takes a value from the environment, `${VAR:-default}` has a default. Write secrets so.

## Quantities

Quantities carry their unit. A bare number is refused, since nobody should have to guess whether `2` means seconds.

| quantity | units | example |
| --- | --- | --- |
"""


@dataclass
class _Part:
    """One section on the page: where it first occurs, of which kind it is there, and where else it occurs."""

    path: str
    kind: str
    node: Node
    told_apart: bool
    others: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return its heading."""
        return f"`{self.path}` ({self.kind})" if self.kind else f"`{self.path}`"

    @property
    def label(self) -> str:
        """Return how links call it: by its kind where there are several, else by its key."""
        last = self.path.rpartition(".")[2].removesuffix("[]")
        return self.kind if self.told_apart else "section" if last == "NAME" else last

    @property
    def anchor(self) -> str:
        """Return the anchor of its heading."""
        return re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", self.title).strip().lower())


def page() -> str:
    """Return the whole page."""
    schema = json_schema()
    parts = _parts(schema)
    quantities = [f"| {u.noun.split(' ', 1)[1]} | {_codes(u.names)} | `{u.example}` |" for u in UNITS]
    body = [text for name, part in parts.items() for text in _section(name, part, parts)]
    return _HEAD + "\n".join([*quantities, "", *body]).rstrip() + "\n"


def _parts(schema: Node) -> dict[str, _Part]:
    """Return the sections by the names of their models, in the order of the file."""
    found: dict[str, _Part] = {}
    nodes = sections(schema)

    def visit(name: str, path: str, kind: str, *, alternative: bool = False) -> None:
        node = nodes[name]
        own = node["properties"].get("type", {}).get("const", "")
        if name in found:
            _note(found[name], path, own or kind)
            return
        found[name] = _Part(path, own or kind, node, told_apart=bool(own) or alternative)
        for key, below in node["properties"].items():
            models = list(_models(below))
            for step, model in models:
                # Alternatives without a type are told apart by the key that each needs.
                other = len(models) > 1 and "type" not in nodes[model]["properties"]
                of_kind = nodes[model].get("required", [""])[0] if other else own or kind
                visit(model, f"{path}.{key}{step}".removeprefix("."), of_kind, alternative=other)

    visit("Config", "", "")
    return found


def _note(part: _Part, path: str, kind: str) -> None:
    """Note one more place of a section; the shortest path names it."""
    if path in (part.path, *part.others):
        return
    if path.count(".") < part.path.count("."):
        part.path, part.kind, path = path, kind, part.path
    part.others.append(path)


def _models(node: Node) -> Iterator[tuple[str, str]]:
    """Yield the models that a node refers to, with what stands between them and its key in a path."""
    for option in options(node):
        if "$ref" in option:
            yield "", str(option["$ref"]).rsplit("/", 1)[-1]
        for step, below in ((".NAME", _entries(option)), ("[]", option.get("items", {}))):
            yield from ((step + deeper, model) for deeper, model in (_models(below) if below else ()))


def _entries(option: Node) -> Node:
    """Return the schema of the values of a map with free keys; empty if there is none."""
    values = [option.get("additionalProperties"), *option.get("patternProperties", {}).values()]
    return next((value for value in values if isinstance(value, dict)), {})


def _section(name: str, part: _Part, parts: dict[str, _Part]) -> Iterator[str]:
    if name == "Config":
        yield "## The file\n"
    else:
        yield f"{'#' * (2 if part.path.count('.') == 0 or part.path == 'queries.NAME' else 3)} {part.title}\n"
    yield _linked(part.node["description"]) + "\n"
    if part.others:
        yield f"The same keys: {_codes(sorted(part.others))}.\n"
    yield "| key | value | default | example | meaning |\n| --- | --- | --- | --- | --- |"
    required = part.node.get("required", ())
    for key, node in sorted(part.node["properties"].items(), key=lambda entry: entry[0] not in required):
        default = "required" if key in required else _default(node)
        example = example_of(node)
        shown = "" if example is None else _code(f"{key}: {flow(example)}")
        cells = (f"`{key}`", _value(node, parts), default, shown, _linked(_sentence(node["description"])))
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""


def _value(node: Node, parts: dict[str, _Part]) -> str:
    """Return what may be written, in users' words."""
    words = [word for option in options(node) if (word := _word(option, parts))]
    words = list(dict.fromkeys(words))
    return f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else "".join(words)


def _word(option: Node, parts: dict[str, _Part]) -> str:
    if "$ref" in option:
        part = parts[str(option["$ref"]).rsplit("/", 1)[-1]]
        return f"[{part.label}](#{part.anchor})"
    if "const" in option or "enum" in option:
        return ", ".join(f"`{flow(value)}`" for value in option.get("enum", [option.get("const")]))
    if option.get("pattern") in _NOUNS:
        return _NOUNS[option["pattern"]]
    kind = option.get("type")
    if kind == "array":
        return f"list: {_value(option['items'], parts)}"
    if kind == "object":
        values = _value(_entries(option), parts)
        return f"map: {values}"
    if kind == "null":
        return ""
    return _FORMATS.get(option.get("format", ""), _PLAIN[str(kind)]) + _limits(option)


def _limits(option: Node) -> str:
    low, high = option.get("minimum"), option.get("maximum")
    if low is not None and high is not None:
        return f", {low:,} to {high:,}"
    above = option.get("exclusiveMinimum")
    if above is not None:
        return f", above {above:,}"
    return "" if not low else f", at least {low:,}"


def _default(node: Node) -> str:
    if "default" not in node or node["default"] in ({}, [], ""):
        return "none"
    return f"`{flow(node['default'])}`"


def _sentence(text: str) -> str:
    """Return a meaning as a sentence; the docstrings begin it in lower case."""
    begun = text if _LEAVES_CASE.match(text) else text[:1].upper() + text[1:]
    return begun if begun.endswith((".", ")")) else begun + "."


def _linked(text: str) -> str:
    return _DOCUMENT.sub(r"[\1](\1)", text)


def _code(text: str) -> str:
    return f"`{text}`"


def _codes(words: Any) -> str:
    return ", ".join(map(_code, words))
