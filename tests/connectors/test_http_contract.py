"""The HTTP connectors pass the suites of all connectors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.sinks.base import Sink
from gateway.sources.http.httpsource import HttpReceiver
from gateway.sources.journaled import JournaledSource
from tests.connectors.http_data import parts_of
from tests.connectors.http_taker import Taker, sink_to, taker
from tests.connectors.sink_contract import SinkContract
from tests.connectors.source_contract import SCHEMA, SourceContract


class ServerSubject:
    """Posts to the source's server; if none is open, one is opened for the request."""

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


class ReceiverSubject:
    """A server that records what it accepts."""

    exactly_once = False
    fences = False

    def __init__(self, folder: Path, server: Taker) -> None:
        self._folder = folder
        self._server = server
        self.made: list[Sink] = []

    def make(self, *, owner: str = "me", epoch: int = 1) -> Sink:
        self.made.append(sink_to(self._server.url, self._folder, owner=owner))
        return self.made[-1]

    async def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for body in self._server.bodies for line in body.splitlines()]


class TestHttpSink(SinkContract):
    @pytest.fixture
    async def subject(self, tmp_path: Path) -> AsyncIterator[ReceiverSubject]:
        async with taker() as server:
            subject = ReceiverSubject(tmp_path, server)
            yield subject
            # Those that were "killed" have connections too.
            for sink in subject.made:
                await sink.close()
