"""What each key of a section means, from the docstrings of the models."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from gateway.config.words.fields import Section

_ATTRIBUTE: Final = re.compile(r"    (?P<name>\w+): (?P<text>\S.*)")


@dataclass(frozen=True)
class Meaning:
    """What a section is for, and what each of its keys means, by the key in the file."""

    summary: str
    keys: dict[str, str]


def key_of(name: str, field: FieldInfo) -> str:
    """Return a field's key in the file."""
    return field.alias or name


def meaning_of(section: type[Section]) -> Meaning:
    """Return the meaning of a section and of its keys; a key that no docstring explains has an empty one."""
    texts: dict[str, str] = {}
    for model in reversed(section.__mro__):
        texts |= _attributes(model.__dict__.get("__doc__") or "")
    summary = _plain(_split(section.__doc__ or "")[0])
    keys = {
        key_of(name, field): texts.get(name) or (summary if _is_kind(field) else "")
        for name, field in section.model_fields.items()
    }
    return Meaning(summary, keys)


def _is_kind(field: FieldInfo) -> bool:
    """Whether the field has one possible value, which says of what kind its section is."""
    return get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1


def _split(docstring: str) -> tuple[str, list[str]]:
    lines = inspect.cleandoc(docstring).splitlines()
    if "Attributes:" not in lines:
        return "\n".join(lines), []
    at = lines.index("Attributes:")
    return "\n".join(lines[:at]), lines[at + 1 :]


def _attributes(docstring: str) -> dict[str, str]:
    return {name: _plain(" ".join(lines)) for name, lines in _entries(_split(docstring)[1])}


def _entries(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    name, texts = "", list[str]()
    for line in lines:
        match = _ATTRIBUTE.fullmatch(line)
        if match is not None:
            if name:
                yield name, texts
            name, texts = match["name"], [match["text"]]
        elif line.startswith("        ") and name:
            texts.append(line.strip())
    if name:
        yield name, texts


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("``", "`")
