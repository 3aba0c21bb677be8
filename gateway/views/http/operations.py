"""The operations of the API as a table: the routes and ``/openapi.json`` are both made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gateway.views.http.models import AnswerModel
from gateway.views.http.orders import OrderModel

NUMBER: Final = "[0-9]{1,15}"
"""A number in a path, as a regular expression."""


class UnknownNameError(Exception):
    """The request names something that does not exist; the message says what there is."""


class RefusedNowError(Exception):
    """The request makes sense, but not now; the message says why."""


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One request, checked.

    Attributes:
        names: the parts of the path, by name.
        asked: the parameters.
        order: the body.
    """

    names: Mapping[str, str]
    asked: Any = None
    order: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Attributes:
        method: of HTTP.
        path: as OpenAPI writes it.
        name: unique, for generated clients.
        summary: one sentence.
        answer: the model of the answer.
        run: answers.
        asked: the model of its parameters, if it has any.
        order: the model of its body, if it has one.
        needs_token: all that act, or show the users' data.
        names: what each part of the path means.
        numbers: those of them that are numbers; a path with other characters there is another path.
    """

    method: Literal["get", "post"]
    path: str
    name: str
    summary: str
    answer: type[AnswerModel]
    run: Callable[[ApiCall], Awaitable[AnswerModel]]
    asked: type[OrderModel] | None = None
    order: type[OrderModel] | None = None
    needs_token: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    numbers: Collection[str] = ()

    @property
    def route(self) -> str:
        """Return the path as the server's router writes it."""
        path = self.path
        for name in self.numbers:
            path = path.replace(f"{{{name}}}", f"{{{name}:{NUMBER}}}")
        return path
