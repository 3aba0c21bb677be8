"""A receiver of results over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from gateway.config.connectors.http import HttpSinkConfig
from gateway.sinks.httpsink import HttpSink
from gateway.sinks.progress import ProgressFile
from infra.clock import Clock, SystemClock


class Taker:
    """Accepts POST requests, and answers as the test says.

    Attributes:
        url: where to post.
        bodies: the accepted bodies.
        keys: the key of each request, accepted or not.
        headers: those of the last request.
        answers: (status, headers, text) for the next requests, instead of 200; these requests are not accepted.
    """

    def __init__(self) -> None:
        self.url = ""
        self.bodies: list[bytes] = []
        self.keys: list[str] = []
        self.headers: dict[str, str] = {}
        self.answers: list[tuple[int, dict[str, str], str]] = []

    async def post(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.keys.append(request.headers["Idempotency-Key"])
        self.headers = dict(request.headers)
        if self.answers:
            status, headers, text = self.answers.pop(0)
            return web.Response(status=status, headers=headers, text=text)
        self.bodies.append(body)
        return web.Response(text="taken")


@asynccontextmanager
async def taker(port: int = 0) -> AsyncIterator[Taker]:
    """A listening receiver."""
    server = Taker()
    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post("/results", server.post)])
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/results"
    try:
        yield server
    finally:
        await runner.cleanup()


def sink_to(
    url: str, folder: Path, *, owner: str = "me", token: str | None = None, clock: Clock | None = None
) -> HttpSink:
    """A sink that posts to ``url``."""
    config = HttpSinkConfig.model_validate({"type": "http", "url": url, "token": token})
    return HttpSink(config, ProgressFile(folder / "progress.json", owner), owner=owner, clock=clock or SystemClock())
