"""Turns the table of operations into handlers: checks the token and the input, answers JSON, and notes actions."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from gateway.views.http.access import ApiToken
from gateway.views.http.audit import Audit
from gateway.views.http.models import ProblemAnswer
from gateway.views.http.operations import ApiCall, Operation, RefusedNowError, UnknownNameError

_LOG = logging.getLogger(__name__)
JSON = "application/json"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class _RefusalError(Exception):
    """A request that is answered with an HTTP status and a sentence."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def problem(status: int, why: str) -> web.Response:
    """Return the answer that refuses a request."""
    headers = {"WWW-Authenticate": "Bearer"} if status == web.HTTPUnauthorized.status_code else None
    text = ProblemAnswer(error=why).model_dump_json()
    return web.Response(text=text, status=status, content_type=JSON, headers=headers)


def answered(answer: BaseModel) -> web.Response:
    """Return an answer as JSON."""
    response = web.Response(text=answer.model_dump_json(), content_type=JSON)
    response.headers["Cache-Control"] = "no-store"
    return response


def handler_of(operation: Operation, token: ApiToken, audit: Audit) -> Handler:
    """Return the handler of an operation."""
    acts = operation.method == "post"

    async def handle(request: web.Request) -> web.StreamResponse:
        action, by = f"{request.method} {request.path}", request.remote or "an unknown address"
        if operation.needs_token and (why := token.refusal(request.headers.get("Authorization"))):
            audit.refused(action, by)
            return problem(401, why)
        given: Any = {}
        try:
            asked = operation.asked and _checked(operation.asked, dict(request.query))
            given = await _body(request) if operation.order is not None else {}
            order = operation.order and _checked(operation.order, given)
            answer = answered(await _run(operation, ApiCall(dict(request.match_info), asked, order)))
        except _RefusalError as refusal:
            answer = problem(refusal.status, str(refusal))
        if acts:
            audit.acted(action, given if isinstance(given, dict) else {}, by, _outcome(answer))
        return answer

    return handle


def _outcome(answer: web.Response) -> str:
    if answer.status == web.HTTPOk.status_code:
        return "done"
    return f"refused: {json.loads(answer.text or '{}')['error']}"


async def _run(operation: Operation, call: ApiCall) -> BaseModel:
    try:
        return await operation.run(call)
    except UnknownNameError as error:
        raise _RefusalError(404, str(error)) from error
    except RefusedNowError as error:
        raise _RefusalError(409, str(error)) from error
    except OSError as error:
        raise _RefusalError(503, f"{error}: try again") from error


async def _body(request: web.Request) -> Any:
    """Return the body; an empty one is an empty object.

    Raises:
        _RefusalError: it is too large, of another type, or no JSON.
    """
    if request.content_type != JSON:
        # A page of another site cannot send this type from a browser.
        raise _RefusalError(415, f"send it as {JSON}")
    try:
        raw = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise _RefusalError(413, "the body is too large") from error
    try:
        return json.loads(raw) if raw.strip() else {}
    except (ValueError, RecursionError) as error:
        raise _RefusalError(422, f"the body is not JSON: {error}") from error


def _checked(model: type[BaseModel], given: Any) -> BaseModel:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _RefusalError(422, "; ".join(map(_text_of, error.errors()))) from error


def _text_of(detail: ErrorDetails) -> str:
    where, what = ".".join(map(str, detail["loc"])) or "body", detail.get("ctx", {}).get("error", detail["msg"])
    return f"{where}: {what}"


@web.middleware
async def as_problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer in JSON also when the server itself refuses a request, such as an unknown path."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if not request.path.startswith("/api/") or error.status < web.HTTPBadRequest.status_code:
            raise
        answer = problem(error.status, f"{request.method} {request.path[:200]}: {error.reason}")
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except Exception:
        _LOG.exception("API: %s %s failed: a mistake of the gateway", request.method, request.path)
        return problem(500, "a mistake of the gateway: see its log")
