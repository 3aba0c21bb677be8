"""The HTTP server of a running gateway: the live page, the API, its older paths, and whether it is ready."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from aiohttp import web

from gateway.config.models import ApiConfig
from gateway.connectors.servertls import server_context
from gateway.hosts.rotation import RotationRefusedError
from gateway.journal.deadletters import ReplayRefusedError
from gateway.views.http.access import ApiToken, TokenError, open_token, token_path
from gateway.views.http.audit import Audit
from gateway.views.http.handling import Handler, as_problems, handler_of
from gateway.views.http.livepage.assets import page_routes
from gateway.views.http.openapi import describe
from gateway.views.http.operations import Operation
from gateway.views.http.probes.probing import Probed, probe_routes
from gateway.views.http.stream import Streams
from gateway.views.live.describing import HISTORY, STREAM
from gateway.views.live.history import History
from infra.clienttls import BadTlsFilesError
from infra.clock import Clock

_LOG = logging.getLogger(__name__)
_BODY_BYTES_MOST: Final = 65_536
_END_WITHIN_S: Final = 2.0


class ApiError(Exception):
    """The API cannot be served; the message says what to do."""


class Answers(Protocol):
    """The part of a gateway that answers requests to the older paths."""

    @property
    def phase(self) -> str:
        """The phase of the gateway."""
        ...

    @property
    def trouble(self) -> str:
        """Why it does not take or deliver events now although it runs; empty if nothing is wrong."""
        ...

    def trouble_of(self, query: str) -> str:
        """Why one query does not take or deliver events now; empty if nothing is wrong.

        Raises:
            KeyError: the query does not exist.
        """
        ...

    def status(self) -> str:
        """Return the status as JSON."""
        ...

    def why(self) -> str:
        """Return the last decision about each query, by its name, as JSON."""
        ...


class ServedGateway(NamedTuple):
    """What a gateway gives to its HTTP server.

    Attributes:
        answers: for the older paths.
        rotate: renews certificates (``gateway.hosts.rotation``); raises RotationRefusedError: not now.
        replay: feeds a query's dead letters back into it, and returns how many; raises KeyError: the query does not
            exist; ReplayRefusedError: not now; OSError: the disk fails.
        operations: the API.
        history: the moments of the last 24 hours.
        probed: for ``/healthz``, ``/readyz`` and ``/metrics``.
        state_dir: where the token and the audit lines are.
        clock: time.
    """

    answers: Answers
    rotate: Callable[[], Awaitable[dict[str, list[str]]]]
    replay: Callable[[str], Awaitable[int]]
    operations: Sequence[Operation]
    history: History
    probed: Probed
    state_dir: Path
    clock: Clock


@asynccontextmanager
async def serve_api(served: ServedGateway, config: ApiConfig) -> AsyncIterator[str]:
    """Serve the live page and the API while the block lasts; yield the URL, which has the port even if 0 is configured.

    The older paths: ``/status``, ``/why`` (JSON) and ``/ready`` (200 if ready, else 503 and why; ``?query=NAME`` for
    one query alone), ``POST /queries/<name>/replay-dead-letters`` and ``POST /certificates/rotate``. Every POST needs
    the token, and the content type ``application/json``, which a page of another site cannot send from a browser.

    Raises:
        ApiError: the address cannot be listened on, or the files of the token or of TLS cannot be used.
    """
    try:
        token = open_token(token_path(served.state_dir, config.token_file))
    except TokenError as error:
        raise ApiError(f"gateway.api.token_file: {error}") from error
    context = _tls_context(config)
    audit, streams = Audit(served.state_dir / "audit", served.clock), Streams(served.history)
    app = web.Application(middlewares=[as_problems], client_max_size=_BODY_BYTES_MOST)
    app.add_routes(page_routes())
    app.add_routes(probe_routes(served.probed))
    app.add_routes(_older_reads(served.answers))
    app.add_routes(_older_actions(served, token, audit))
    app.add_routes(_api(served.operations, token, audit))
    app.add_routes([web.get(HISTORY, streams.recall), web.get(STREAM, streams.stream)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=_END_WITHIN_S)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port, ssl_context=context).start()
        except OSError as error:
            raise ApiError(
                f"gateway.api.listen: cannot listen on {config.listen} ({error.strerror or error}): "
                "end what uses it, or choose another port"
            ) from error
        yield config.url_at(runner.addresses[0][1])
    finally:
        streams.end()
        await runner.cleanup()
        await audit.close()


def _tls_context(config: ApiConfig) -> ssl.SSLContext | None:
    if config.insecure:
        _LOG.warning("gateway.api.insecure: the API at %s has no TLS, so others may read the token", config.listen)
    try:
        return None if config.tls is None else server_context(config.tls)
    except BadTlsFilesError as error:
        raise ApiError(f"gateway.api.tls: {error}") from error


def _api(operations: Sequence[Operation], token: ApiToken, audit: Audit) -> list[web.RouteDef]:
    description = describe(operations, version("spillway"))

    async def openapi(_: web.Request) -> web.Response:
        return web.json_response(description)

    routes = [web.get("/openapi.json", openapi)]
    for operation in operations:
        register = web.get if operation.method == "get" else web.post
        routes.append(register(operation.route, handler_of(operation, token, audit)))
    return routes


def _older_reads(gateway: Answers) -> list[web.RouteDef]:
    async def status(_: web.Request) -> web.Response:
        return web.Response(text=gateway.status(), content_type="application/json")

    async def why(_: web.Request) -> web.Response:
        return web.Response(text=gateway.why(), content_type="application/json")

    async def ready(request: web.Request) -> web.Response:
        query = request.query.get("query")
        try:
            trouble = gateway.trouble if query is None else gateway.trouble_of(query)
        except KeyError:
            return web.Response(text=f"there is no query {query}", status=404)
        ready = gateway.phase == "running" and not trouble
        return web.Response(text=trouble or gateway.phase, status=200 if ready else 503)

    return [web.get("/status", status), web.get("/why", why), web.get("/ready", ready)]


def _older_actions(served: ServedGateway, token: ApiToken, audit: Audit) -> list[web.RouteDef]:
    async def rotate(_: web.Request) -> web.Response:
        try:
            return web.json_response(await served.rotate())
        except RotationRefusedError as error:
            return web.Response(text=str(error), status=409)

    async def replay(request: web.Request) -> web.Response:
        name = request.match_info["name"]
        try:
            return web.json_response({"replayed": await served.replay(name)})
        except KeyError:
            return web.Response(text=f"there is no query {name}", status=404)
        except ReplayRefusedError as error:
            return web.Response(text=str(error), status=409)
        except OSError as error:
            return web.Response(text=f"{error}: try again", status=503)

    return [
        web.post("/queries/{name}/replay-dead-letters", _with_token(replay, token, audit)),
        web.post("/certificates/rotate", _with_token(rotate, token, audit)),
    ]


def _with_token(handle: Handler, token: ApiToken, audit: Audit) -> Handler:
    async def checked(request: web.Request) -> web.StreamResponse:
        action, by = f"{request.method} {request.path}", request.remote or "an unknown address"
        if why := token.refusal(request.headers.get("Authorization")):
            audit.refused(action, by)
            return web.Response(text=why, status=401, headers={"WWW-Authenticate": "Bearer"})
        if request.content_type != "application/json":
            return web.Response(text="send it as application/json", status=415)
        answer = await handle(request)
        audit.acted(action, {}, by, "done" if answer.status == web.HTTPOk.status_code else f"status {answer.status}")
        return answer

    return checked
