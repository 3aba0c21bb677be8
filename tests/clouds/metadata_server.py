"""The metadata service of spot VMs, in this process: EC2's second version and GCE's."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Self

from aiohttp import web

TOKEN = "a-token-of-this-machine"


class MetadataServer:
    """Gives no notice until ``take_back``; meanwhile it may hang, fail or send nonsense (``trouble``).

    Attributes:
        asked: how many requests for a notice came.
        trouble: ``""``, ``hangs``, ``fails``, or ``nonsense``.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.trouble = ""
        self._ends: datetime | None = None
        self._runner: web.AppRunner | None = None
        self.url = ""

    def take_back(self, in_s: float) -> None:
        self._ends = datetime.now(UTC) + timedelta(seconds=in_s)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.add_routes(
            [
                web.put("/latest/api/token", self._token),
                web.get("/latest/meta-data/spot/instance-action", self._ec2),
                web.get("/computeMetadata/v1/instance/preempted", self._gce),
            ]
        )
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _token(self, request: web.Request) -> web.Response:
        if not 1 <= int(request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", 0)) <= 21_600:
            return web.Response(status=400)
        return web.Response(text=TOKEN)

    async def _ec2(self, request: web.Request) -> web.Response:
        if request.headers.get("X-aws-ec2-metadata-token") != TOKEN:
            return web.Response(status=401)
        answer = await self._in_trouble()
        if answer is not None:
            return answer
        if self._ends is None:
            return web.Response(status=404, text="not found")
        return web.json_response({"action": "terminate", "time": self._ends.strftime("%Y-%m-%dT%H:%M:%SZ")})

    async def _gce(self, request: web.Request) -> web.Response:
        if request.headers.get("Metadata-Flavor") != "Google":
            return web.Response(status=403)
        return await self._in_trouble() or web.Response(text="FALSE" if self._ends is None else "TRUE")

    async def _in_trouble(self) -> web.Response | None:
        self.asked += 1
        if self.trouble == "hangs":
            await asyncio.sleep(3600)
        if self.trouble == "fails":
            return web.Response(status=500)
        return web.Response(text="{") if self.trouble == "nonsense" else None
