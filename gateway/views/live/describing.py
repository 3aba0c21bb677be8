"""Describes the history and the stream for ``/openapi.json``: their answers consist of moments, not of models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from gateway.views.live.moments import Moment

HISTORY: Final = "/api/v1/history"
STREAM: Final = "/api/v1/stream"
_REF: Final = "#/components/schemas/{name}"


def describe_moments(problem: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the paths, each with its answers, and the schemas that they refer to.

    Args:
        problem: the schema of an answer that refuses a request.
    """
    (moment,), schemas = msgspec.json.schema_components((Moment,), ref_template=_REF)
    moments = {"type": "array", "items": moment}
    recalled = {
        "type": "object",
        "title": "History",
        "description": "Moments of the last 24 hours; each is in one list. Continue with the stream after last_id.",
        "properties": {"minutes": moments, "newest": moments, "last_id": {"type": "integer"}},
        "required": ["minutes", "newest", "last_id"],
        "additionalProperties": False,
    }
    paths = {
        HISTORY: {
            "get": {
                "operationId": "history",
                "summary": "The figures of the last 24 hours.",
                "responses": {
                    "200": _content("The answer.", "application/json", recalled),
                    "422": _content("The parameters are wrong.", "application/json", problem),
                },
            }
        },
        STREAM: {
            "get": {
                "operationId": "stream",
                "summary": "Each moment as it ends, as server-sent events; it does not end by itself.",
                "responses": {
                    "200": _content("Events named moment (data: a Moment) or reset.", "text/event-stream", _TEXT),
                    "422": _content("The parameters are wrong.", "application/json", problem),
                    "503": _content("Too many streams are open: try again.", "application/json", problem),
                },
            }
        },
    }
    return paths, schemas


_TEXT: Final = {"type": "string"}


def _content(description: str, media_type: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {media_type: {"schema": schema}}}
