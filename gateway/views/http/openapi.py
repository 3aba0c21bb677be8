"""The description of the API at ``/openapi.json`` (OpenAPI 3.1), made from the table of operations and from moments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema

from gateway.views.http.models import ProblemAnswer
from gateway.views.http.operations import NUMBER, Operation
from gateway.views.http.orders import HistoryAsked, OrderModel, StreamAsked
from gateway.views.live.describing import HISTORY, STREAM, describe_moments

_REF = "#/components/schemas/{model}"
_TOKEN = "token"  # noqa: S105 -- the name of the scheme
_REFUSALS = {
    "401": "The gateway's token is missing, or it is another one.",
    "404": "There is nothing of this name.",
    "409": "Not now; the answer says why.",
    "413": "The body is too large.",
    "415": "The body is not application/json.",
    "422": "The parameters or the body are wrong; the answer says where.",
    "503": "The disk failed, or too many requests are open: try again.",
}


def describe(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """Return the description as plain values, ready for JSON."""
    wanted: list[tuple[type[BaseModel], JsonSchemaMode]] = [(ProblemAnswer, "serialization")]
    for operation in operations:
        wanted.append((operation.answer, "serialization"))
        if operation.order is not None:
            wanted.append((operation.order, "validation"))
    refs, definitions = models_json_schema(list(dict.fromkeys(wanted)), ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation, refs)
    problem = refs[ProblemAnswer, "serialization"]
    others, moments = describe_moments(problem)
    for path, asked in ((HISTORY, HistoryAsked), (STREAM, StreamAsked)):
        others[path]["get"]["parameters"] = _query_parameters(asked)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Spillway",
            "version": version,
            "description": "See and steer a running gateway. Every action needs the gateway's token.",
        },
        "paths": paths | others,
        "components": {
            "schemas": definitions["$defs"] | moments,
            "securitySchemes": {_TOKEN: {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(operation: Operation, refs: Any) -> dict[str, Any]:
    said: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": [*_path_parameters(operation), *_query_parameters(operation.asked)],
        "responses": {
            "200": _content("The answer.", refs[operation.answer, "serialization"]),
            **{code: _content(_REFUSALS[code], refs[ProblemAnswer, "serialization"]) for code in _refusals(operation)},
        },
    }
    if operation.order is not None:
        said["requestBody"] = {
            # Even an empty one: without the content type the request is refused.
            "required": True,
            "content": {"application/json": {"schema": refs[operation.order, "validation"]}},
        }
    if operation.needs_token:
        said["security"] = [{_TOKEN: []}]
    return said


def _refusals(operation: Operation) -> list[str]:
    codes = ["404", "409", "503"]
    codes += ["401"] if operation.needs_token else []
    codes += ["413", "415"] if operation.order is not None else []
    codes += ["422"] if operation.order is not None or operation.asked is not None or operation.names else []
    return sorted(codes)


def _content(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _path_parameters(operation: Operation) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": meaning,
            "schema": {"type": "string", **({"pattern": f"^{NUMBER}$"} if name in operation.numbers else {})},
        }
        for name, meaning in operation.names.items()
    ]


def _query_parameters(asked: type[OrderModel] | None) -> list[dict[str, Any]]:
    if asked is None:
        return []
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": schema.get("description", ""),
            "schema": _without_null(schema),
        }
        for name, schema in asked.model_json_schema()["properties"].items()
    ]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter: an absent one is left out, and never sent as null."""
    kept = {key: value for key, value in schema.items() if key not in ("anyOf", "default", "title", "description")}
    for choice in schema.get("anyOf", ()):
        if choice.get("type") != "null":
            kept.update(choice)
    return kept
