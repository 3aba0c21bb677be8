"""The HTTP connectors, and the suites that every connector passes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from http_data import parts_of
from source_contract import SCHEMA, SourceContract

from gateway.sources.http import HttpReceiver
from gateway.sources.journaled import JournaledSource


class ServerSubject:
    """Posts to the source's server; when none is open, to one that is opened for it."""

    finite = False
    ordered = True

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._receiver: HttpReceiver | None = None

    async def put(self, rows: list[dict[str, Any]]) -> None:
        await self._post(b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    async def put_undecodable(self, raw: bytes) -> None:
        await self._post(raw)

    async def _post(self, body: bytes) -> None:
        if self._receiver is None or not self._receiver.listening:
            _, receiver, source = parts_of(self._folder)
            await source.open(SCHEMA)
            try:
                await self._send(receiver.port, body)
            finally:
                await source.close()
            return
        await self._send(self._receiver.port, body)

    async def _send(self, port: int, body: bytes) -> None:
        async with (
            aiohttp.ClientSession() as client,
            client.post(f"http://127.0.0.1:{port}/events", data=body) as answer,
        ):
            assert answer.status == 200

    def make(self) -> JournaledSource:
        _, self._receiver, source = parts_of(self._folder)
        return source


class TestHttpSource(SourceContract):
    @pytest.fixture
    def subject(self, tmp_path: Path) -> ServerSubject:
        return ServerSubject(tmp_path)
