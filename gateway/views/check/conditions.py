"""Says in words which rows a condition keeps."""

from __future__ import annotations

from infra.messages import Predicate

_COMPARED = {"eq": "=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_WORDED = {"starts_with": "starts with", "ends_with": "ends with", "contains": "contains"}


def predicate_text(predicate: Predicate) -> str:
    """Return a condition in words."""
    column = ".".join(predicate.column)
    match predicate.op:
        case "is_null":
            return f"{column} is null"
        case "not_null":
            return f"{column} is not null"
        case "not":
            return f"not ({predicate_text(predicate.children[0])})"
        case "and" | "or":
            return "(" + f" {predicate.op} ".join(predicate_text(child) for child in predicate.children) + ")"
        case "in":
            return f"{column} in {predicate.value!r}"
        case _:
            return f"{column} {_COMPARED.get(predicate.op) or _WORDED[predicate.op]} {predicate.value!r}"
