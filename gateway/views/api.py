"""The HTTP API of a running gateway: its status, and whether it is ready."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from gateway.config.models import ApiConfig
from gateway.hosts.rotation import RotationRefusedError
from gateway.journal.deadletters import ReplayRefusedError


class ApiError(Exception):
    """The API cannot be served; the message says what to do."""


class Answers(Protocol):
    """The part of a gateway that answers the API's requests."""

    phase: str

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

    async def rotate_certificates(self) -> dict[str, list[str]]:
        """Renew all keys and certificates; see ``gateway.hosts.rotation``.

        Raises:
            RotationRefusedError: not now.
        """
        ...

    async def replay_dead_letters(self, query: str) -> int:
        """Feed a query's dead letters back into it as new events; return how many.

        Raises:
            KeyError: the query does not exist.
            ReplayRefusedError: not now.
            OSError: the disk fails; call it again.
        """
        ...


@asynccontextmanager
async def serve_api(gateway: Answers, config: ApiConfig) -> AsyncIterator[None]:
    """Serve ``/status``, ``/why`` (JSON) and ``/ready`` (200 if ready, else 503 and why) while the block lasts.

    ``/ready?query=NAME`` answers for one query alone.

    ``POST /queries/<name>/replay-dead-letters`` answers ``{"replayed": <count>}``, ``POST /certificates/rotate`` the
    hosts with new ones. Both require the content type ``application/json``, which a page of another site cannot send
    from a browser.

    Raises:
        ApiError: the address cannot be listened on.
    """

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

    async def rotate(request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return web.Response(text="send it as application/json", status=415)
        try:
            return web.json_response(await gateway.rotate_certificates())
        except RotationRefusedError as error:
            return web.Response(text=str(error), status=409)

    async def replay(request: web.Request) -> web.Response:
        if request.content_type != "application/json":
            return web.Response(text="send it as application/json", status=415)
        name = request.match_info["name"]
        try:
            return web.json_response({"replayed": await gateway.replay_dead_letters(name)})
        except KeyError:
            return web.Response(text=f"there is no query {name}", status=404)
        except ReplayRefusedError as error:
            return web.Response(text=str(error), status=409)
        except OSError as error:
            return web.Response(text=f"{error}: try again", status=503)

    app = web.Application()
    app.add_routes([web.get("/status", status), web.get("/why", why), web.get("/ready", ready)])
    app.add_routes([web.post("/queries/{name}/replay-dead-letters", replay)])
    app.add_routes([web.post("/certificates/rotate", rotate)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, config.host, config.port).start()
        except OSError as error:
            raise ApiError(
                f"gateway.api.listen: cannot listen on {config.listen} ({error.strerror or error}): "
                "end what uses it, or choose another port"
            ) from error
        yield
    finally:
        await runner.cleanup()
