"""A running daemon of doubles, and a client of its API with the token."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.views.http.access import read_token
from infra.statefiles import numbered_files
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import Site
from tests.support.waiting import until


class Operator:
    """A running daemon, and a client with its token."""

    def __init__(self, folder: Path, site: Site, port: int, session: aiohttp.ClientSession) -> None:
        self.folder = folder
        self.site = site
        self.url = f"http://127.0.0.1:{port}"
        self._session = session
        self.headers = {"Authorization": f"Bearer {read_token(folder / 'state' / 'api-token')}"}

    async def get(self, path: str, *, token: bool = False, **params: Any) -> tuple[int, Any]:
        headers = self.headers if token else {}
        async with self._session.get(f"{self.url}{path}", params=params, headers=headers) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str, order: Any = None, *, token: bool = True) -> tuple[int, Any]:
        headers = self.headers if token else {}
        async with self._session.post(f"{self.url}{path}", json=order or {}, headers=headers) as answer:
            return answer.status, await answer.json()

    def audit(self) -> list[dict[str, Any]]:
        files = sorted(numbered_files(self.folder / "state" / "audit"))
        return [json.loads(line) for _, path in files for line in path.read_text().splitlines()]


@pytest.fixture
async def operator(tmp_path: Path) -> AsyncIterator[Operator]:
    port = free_port()
    site = Site(tmp_path, port=port)
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: running.done() or site.daemon.phase == "running")
    async with aiohttp.ClientSession() as session:
        yield Operator(tmp_path, site, port, session)
        site.query.idle = True
        site.daemon.parts.drain()
        assert await running == 0
