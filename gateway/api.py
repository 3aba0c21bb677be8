"""What a running gateway answers over HTTP: its status, and whether it is ready."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol

from aiohttp import web

from gateway.config.models import Api


class ApiError(Exception):
    """The API cannot be served; the message says what to do."""


class Answers(Protocol):
    """Who knows the gateway's status."""

    phase: str

    @property
    def trouble(self) -> str:
        """Why it does not take or deliver events now although it runs; empty when all is well."""
        ...

    def status(self) -> str:
        """Return the status as JSON."""
        ...


@asynccontextmanager
async def serve_api(gateway: Answers, config: Api) -> AsyncIterator[None]:
    """Serve ``/status`` (JSON) and ``/ready`` (200 while all is well, else 503 and why) as long as the block lasts.

    Raises:
        ApiError: the address cannot be listened on.
    """

    async def status(_: web.Request) -> web.Response:
        return web.Response(text=gateway.status(), content_type="application/json")

    async def ready(_: web.Request) -> web.Response:
        trouble = gateway.trouble
        ready = gateway.phase == "running" and not trouble
        return web.Response(text=trouble or gateway.phase, status=200 if ready else 503)

    app = web.Application()
    app.add_routes([web.get("/status", status), web.get("/ready", ready)])
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
