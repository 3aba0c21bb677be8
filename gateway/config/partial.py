"""Problems between the valid parts of a config that also has invalid parts.

pydantic checks how parts fit together only if each of them is valid. Users want to see all problems at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError, create_model

from gateway.config.models import Config, QueryConfig
from gateway.config.words.fields import QueryName, Section

Key = tuple[str | int, ...]
_NAME: Final[TypeAdapter[str]] = TypeAdapter(QueryName)


def unseen(data: dict[str, Any], context: dict[str, Any]) -> Iterator[tuple[Key, str]]:
    """Yield key and text of the problems between the valid parts.

    Args:
        data: the plain data of a config that was refused.
        context: the validation context.
    """
    written = data.get("queries")
    queries = {
        name: QueryConfig.of_readable(*_readable(QueryConfig, query, context))
        for name, query in (written.items() if isinstance(written, dict) else ())
        if isinstance(query, dict)
    }
    for name, query in queries.items():
        yield from ((("queries", name, *finding.key), finding.what) for finding in query.findings())
    if isinstance(written, dict) and len(queries) == len(written) and all(map(_is_name, queries)):
        values, mistaken = _readable(Config, data, context)
        whole = Config.of_readable({**values, "queries": queries}, mistaken - {"queries"})
        yield from ((finding.key, finding.what) for finding in whole.findings())


def _is_name(text: str) -> bool:
    try:
        _NAME.validate_python(text)
    except ValidationError:
        return False
    return True


def _readable(
    model: type[Section], data: dict[str, Any], context: dict[str, Any]
) -> tuple[dict[str, Any], frozenset[str]]:
    """Return the valid fields' values by their names in the file, None for invalid fields, and the invalid fields."""
    values: dict[str, Any] = {}
    mistaken: set[str] = set()
    for name, field in model.model_fields.items():
        key = field.alias or name
        definition: Any = (field.annotation, field)
        alone = create_model(name, __base__=Section, **{name: definition})
        try:
            values[key] = getattr(alone.model_validate({k: data[k] for k in data if k == key}, context=context), name)
        except ValidationError:
            values[key] = None
            mistaken.add(name)
    return values, frozenset(mistaken)
