"""The history and the stream of moments: server-sent events that can be continued."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from aiohttp import web

from gateway.views.http.handling import JSON, problem
from gateway.views.http.orders import HistoryAsked, StreamAsked
from gateway.views.live.history import History

_LOG = logging.getLogger(__name__)
STREAMS_MOST: Final = 32
"""At most so many streams are open at a time."""

QUIET_S: Final = 15.0
"""Something is sent at least this often, so that both sides notice a lost connection."""


RETRY_MS: Final = 1000
"""A browser that has lost its stream connects again after so long."""


class Streams:
    """Serves the moments of a history.

    Args:
        history: of the gateway.
    """

    def __init__(self, history: History) -> None:
        self._history = history
        self._open = 0
        self._ends = asyncio.Event()

    def end(self) -> None:
        """End all streams: a server that stops waits for its requests."""
        self._ends.set()

    async def recall(self, request: web.Request) -> web.StreamResponse:
        """Answer with the moments of the last 24 hours."""
        try:
            asked = HistoryAsked.model_validate(dict(request.query))
        except ValueError as error:
            return problem(422, str(error))
        found = await self._history.recalled(asked.query)
        minutes, newest = b",".join(found.minutes), b",".join(found.newest)
        body = b'{"minutes":[%b],"newest":[%b],"last_id":%d}' % (minutes, newest, found.last_id)
        response = web.Response(body=body, content_type=JSON, headers={"Cache-Control": "no-store"})
        response.enable_compression()
        return response

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Send each moment as it ends, from the one after ``Last-Event-ID`` on.

        An event ``reset`` says that some of the moments after it are not kept one by one any more: a client then
        loads the history again.
        """
        try:
            asked = StreamAsked.model_validate(dict(request.query))
            last_id = _last_id(request.headers.get("Last-Event-ID"), asked.after, self._history.last_id)
        except ValueError as error:
            return problem(422, str(error))
        if self._open >= STREAMS_MOST:
            return problem(503, f"{STREAMS_MOST} pages are open already: close one")
        self._open += 1
        try:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
            await response.prepare(request)
            await response.write(b"retry: %d\n\n" % RETRY_MS)
            await self._send(response, last_id)
            return response
        finally:
            self._open -= 1

    async def _send(self, response: web.StreamResponse, last_id: int) -> None:
        try:
            while not self._ends.is_set():
                last_id = await self._send_news(response, last_id)
                if not await self._more(last_id):
                    await response.write(b": still here\n\n")
        except ConnectionError as error:
            _LOG.debug("a page was closed: %s", error)

    async def _send_news(self, response: web.StreamResponse, last_id: int) -> int:
        """Send what came after a moment; return the last one that was sent."""
        news = self._history.after(last_id)
        if news is None:
            last_id = self._history.last_id
            await response.write(b"id: %d\nevent: reset\ndata: {}\n\n" % last_id)
            return last_id
        for moment_id, line in news:
            await response.write(b"id: %d\nevent: moment\ndata: %b\n\n" % (moment_id, line))
            last_id = moment_id
        return last_id

    async def _more(self, last_id: int) -> bool:
        """Wait for the next moment, or the end; return False after a while without either."""
        waits = [
            asyncio.ensure_future(self._history.wait_beyond(last_id)),
            asyncio.ensure_future(self._ends.wait()),
        ]
        try:
            done, _ = await asyncio.wait(waits, timeout=QUIET_S, return_when=asyncio.FIRST_COMPLETED)
            return bool(done)
        finally:
            for wait in waits:
                wait.cancel()


def _last_id(header: str | None, asked: int | None, newest: int) -> int:
    if header is None:
        return newest if asked is None else asked
    if not header.isascii() or not header.isdigit() or len(header) > 16:
        raise ValueError("Last-Event-ID is the id of an event of this stream, a number")
    return int(header)
