"""Translates pydantic's errors into the words of the YAML file: the key, the problem, and the nearest valid word."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import Any, Final

from pydantic import ValidationError
from pydantic_core import ErrorDetails

Key = tuple[str | int, ...]

# A variable that could not be filled in is reported separately; errors that follow from it are noise.
_UNFILLED: Final = "${"
# Common other names, by the valid word.
_ALSO_CALLED: Final = {
    "ec2": ("aws", "amazon"),
    "gce": ("google", "gcp"),
    "digitalocean": ("do",),
    "process": ("local", "localhost"),
}


def explain(error: ValidationError, data: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield each problem's key and text.

    Args:
        error: raised when ``data`` was validated.
        data: the plain data; it distinguishes keys from the union tags that pydantic inserts between them.
        schema: the JSON Schema of the model; it has the valid keys.
    """
    for detail in error.errors(include_url=False):
        findings = detail.get("ctx", {}).get("findings")
        key = _without_tags(detail["loc"], data, of_section=findings is not None)
        if findings is not None:
            yield from (((*key, *finding.key), finding.what) for finding in findings)
        elif _UNFILLED not in str(detail["input"]) or isinstance(detail["input"], dict):
            tagged = (*key, "type") if detail["type"].startswith("union_tag") else key
            yield tagged, _text(detail, key, schema, data)


def _without_tags(loc: Key, data: Any, *, of_section: bool) -> Key:
    """Return the location without the discriminator values, which are not keys of the file.

    Args:
        loc: where pydantic found the problem.
        data: the validated data.
        of_section: ``loc`` is that of a section, so its last part may also be a discriminator value.
    """
    key: list[str | int] = []
    node = data
    for index, part in enumerate(loc):
        last = index == len(loc) - 1 and not of_section
        if isinstance(node, dict) and part not in node and not last and node.get("type") == part:
            continue
        if part == "[key]":
            continue
        key.append(part)
        inside = (isinstance(node, dict) and part in node) or (isinstance(node, list) and isinstance(part, int))
        node = node[part] if inside else None
    return tuple(key)


def _text(detail: ErrorDetails, key: Key, schema: dict[str, Any], data: dict[str, Any]) -> str:
    context = detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return _missing_text(key, schema, data)
        case "extra_forbidden":
            return _unknown_key_text(key, schema, data)
        case "union_tag_not_found":
            return f"is missing; add it, as in {{type: {'reactive' if key[-1:] == ('policy',) else 'file'}, …}}"
        case "union_tag_invalid":
            expected = [word.strip(" '") for word in str(context["expected_tags"]).split(",")]
            return _word_text(str(context["tag"]), expected)
        case "literal_error":
            expected = [word.strip(" '") for word in str(context["expected"]).replace(" or ", ", ").split(",")]
            return _word_text(str(detail["input"]), expected)
        case "value_error":
            return str(context["error"])
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must hold keys, not {detail['input']!r}{_keys_hint(key, schema)}"
        case "int_parsing" | "int_type" | "int_from_float":
            return f"must be a whole number, not {detail['input']!r}"
        case "float_parsing" | "float_type":
            return f"must be a number, not {detail['input']!r}"
        case _:
            return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, not {detail['input']!r}"


def _word_text(word: str, expected: list[str]) -> str:
    return f'"{word}" is not one of {", ".join(expected)}{_did_you_mean(word, expected)}'


def _missing_text(key: Key, schema: dict[str, Any], data: dict[str, Any]) -> str:
    unknown = [name for name in _present(key[:-1], data) if name not in _known(key[:-1], schema)]
    near = difflib.get_close_matches(str(key[-1]), unknown, n=1)
    return f'is missing; is it misspelled as "{near[0]}"?' if near else "is missing; add it"


def _unknown_key_text(key: Key, schema: dict[str, Any], data: dict[str, Any]) -> str:
    known = _known(key[:-1], schema)
    free = [name for name in known if name not in _present(key[:-1], data)]
    hint = _did_you_mean(str(key[-1]), free or known)
    return f"unknown key{hint}; the keys here are {', '.join(known)}"


def _did_you_mean(word: str, candidates: list[str]) -> str:
    called = [right for right in candidates if word.lower() in (right, *_ALSO_CALLED.get(right, ()))]
    near = called or difflib.get_close_matches(word, candidates, n=1, cutoff=0.5)
    return f' (did you mean "{near[0]}"?)' if near else ""


def _keys_hint(key: Key, schema: dict[str, Any]) -> str:
    known = _known(key, schema)
    return f"; the keys here are {', '.join(known)}" if known else ""


def _present(key: Key, data: Any) -> list[str]:
    for part in key:
        inside = (isinstance(data, dict) and part in data) or (isinstance(data, list) and isinstance(part, int))
        data = data[part] if inside else {}
    return list(data) if isinstance(data, dict) else []


def _known(key: Key, schema: dict[str, Any]) -> list[str]:
    """Return the keys that the JSON Schema allows at a location."""
    options = [schema]
    for part in key:
        options = [step for option in options for step in _steps(option, part, schema)]
    names = [name for option in options for name in _properties(option)]
    return list(dict.fromkeys(names))


def _steps(node: dict[str, Any], part: str | int, schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if isinstance(part, int) and "items" in node:
        yield from _resolved(node["items"], schema)
    elif part in _properties(node):
        yield from _resolved(_properties(node)[part], schema)
    else:
        anything = [node.get("additionalProperties"), *node.get("patternProperties", {}).values()]
        for value in anything:
            if isinstance(value, dict):
                yield from _resolved(value, schema)


def _resolved(node: dict[str, Any], schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in node:
        yield schema["$defs"][str(node["$ref"]).rsplit("/", 1)[-1]]
    for option in [*node.get("anyOf", []), *node.get("oneOf", [])]:
        yield from _resolved(option, schema)
    if "$ref" not in node:
        yield node


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = node.get("properties", {})
    return found
