"""The HTTP source: senders POST JSON lines, and get their answer when the lines are safe in the journal."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Final

import msgspec
from aiohttp import web

from gateway.config.connectors.http import HttpSourceConfig
from gateway.connectors.servertls import server_context
from gateway.journal.journal import Journal, JournalFullError
from gateway.sources.http.body import ENCODINGS, BadBodyError, BodyTooLargeError, split_lines, unpack
from gateway.sources.http.judging import Judge, RequestVerdict
from infra.clienttls import BadTlsFilesError
from infra.rows.base import SourceError, SourceUnavailableError
from infra.together import await_shared

_LOG = logging.getLogger(__name__)
KEY_CHARS_MAX: Final = 255
# How much all requests together may hold, in bodies of the largest size, and how many requests there may be at once.
# Each body is in memory about three times while it is split into lines and written.
BODIES_MAX: Final = 4
REQUESTS_MAX: Final = 1024
_UNPACKED_AT_ONCE: Final = 2
BODY_S: Final = 60.0
_SHUTDOWN_S: Final = 5.0
_FULL_RETRY_S: Final = 1
_DISK_RETRY_S: Final = 5
_DIGEST_BYTES: Final = 16
_HELP = (
    "POST JSON lines here, one object in each line. Content-Encoding may be gzip or zstd.\n"
    'The answer is 200 once all lines are on disk: {{"records": 2, "duplicate": false}}.\n'
    "Lines that do not match the query's schema become dead letters, and the answer reports them: taken and\n"
    "dead_lettered (numbers of lines), first_reason, dead_letters (the file).\n"
    "With an Idempotency-Key header (up to {key_chars} characters) a request may be sent again for {keep_s:g} s.\n"
    "429 and 503: nothing was accepted; retry after Retry-After seconds.\n"
)


class _Refused(Exception):  # noqa: N818 -- an answer, not an error of this program
    """The answer of a refused request; nothing of the request was accepted."""

    def __init__(self, status: HTTPStatus, why: str, **headers: str) -> None:
        super().__init__(why)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


@dataclass(slots=True)
class _Bound:
    """The limit and the present size of all requests together."""

    limit_bytes: int
    held_bytes: int = 0


@dataclass(frozen=True, slots=True)
class _InFlight:
    """A request with a key that is being written."""

    digest: bytes
    work: asyncio.Task[int]


class _Share:
    """One request's part of the bytes of all requests; released at its end."""

    def __init__(self, bound: _Bound) -> None:
        self._bound = bound
        self._held_bytes = 0

    def __enter__(self) -> _Share:
        return self

    def take(self, count_bytes: int) -> None:
        """Reserve more bytes, or refuse the request."""
        if self._bound.held_bytes + count_bytes > self._bound.limit_bytes:
            raise _busy()
        self._bound.held_bytes += count_bytes
        self._held_bytes += count_bytes

    def __exit__(self, *_: object) -> None:
        self._bound.held_bytes -= self._held_bytes


class HttpReceiver:
    """The ``Receiver`` that is an HTTP server.

    Args:
        config: the source's config.
        journal: open while the receiver is started; remembers keys.
        judge: says for an answer which lines are no events.
        dead_letters: the file that such lines go to when the source reads them.
        body_s: how long a body may take to arrive.
    """

    def __init__(
        self, config: HttpSourceConfig, journal: Journal, judge: Judge, dead_letters: Path, *, body_s: float = BODY_S
    ) -> None:
        self._config = config
        self._journal = journal
        self._judge = judge
        self._dead_letters = dead_letters
        self._body_s = body_s
        self._runner: web.AppRunner | None = None
        self._server: asyncio.Server | None = None
        self._in_flight: dict[str, _InFlight] = {}
        self._requests = 0
        self._bodies = _Bound(BODIES_MAX * config.max_body_bytes)
        self._unpacking = asyncio.Semaphore(_UNPACKED_AT_ONCE)

    @property
    def port(self) -> int:
        """The listening port, when started."""
        assert self._server is not None, "the receiver is started"
        return int(self._server.sockets[0].getsockname()[1])

    @property
    def listening(self) -> bool:
        """Whether requests are accepted."""
        return self._server is not None and self._server.is_serving()

    @property
    def request_count(self) -> int:
        """How many requests are being answered."""
        return self._requests

    @property
    def keyed_count(self) -> int:
        """How many requests with a key are being written."""
        return len(self._in_flight)

    @property
    def held_bytes(self) -> int:
        """How many bytes of bodies are in memory."""
        return self._bodies.held_bytes

    @property
    def failure(self) -> SourceError | SourceUnavailableError | None:
        """See ``Receiver.failure``."""
        if self._server is not None and not self.listening:
            return SourceError(f"the HTTP server on {self._config.listen} no longer listens")
        return None

    async def start(self) -> None:
        """See ``Receiver.start``."""
        app = web.Application()
        app.add_routes([web.post(self._config.path, self._post), web.get(self._config.path, self._help)])
        # Bodies are decompressed in our own code, which limits their size.
        runner = web.AppRunner(app, access_log=None, auto_decompress=False, shutdown_timeout=_SHUTDOWN_S)
        await runner.setup()
        assert runner.server is not None, "it was set up"
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                runner.server, self._config.host, self._config.port, ssl=_tls_context(self._config)
            )
        except OSError as error:
            await runner.cleanup()
            raise SourceError(
                f"source http: cannot listen on {self._config.listen} ({error.strerror or error}): "
                "end what uses it, or choose another port"
            ) from error
        except SourceError:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """See ``Receiver.stop``."""
        server, runner = self._server, self._runner
        self._server = self._runner = None
        if server is not None:
            server.close()
        if runner is not None:
            await runner.cleanup()
        await asyncio.gather(*(flight.work for flight in self._in_flight.values()), return_exceptions=True)

    # ----------------------------------------------------------------------------------------------------- answering

    async def _help(self, _: web.Request) -> web.Response:
        return web.Response(text=_HELP.format(key_chars=KEY_CHARS_MAX, keep_s=self._config.remember_keys_s))

    async def _post(self, request: web.Request) -> web.Response:
        try:
            answer = await self._answer(request)
        except _Refused as refused:
            return _json({"error": str(refused)}, refused.status, refused.headers)
        except BodyTooLargeError as error:
            return _json({"error": str(error)}, HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        except BadBodyError as error:
            return _json({"error": str(error)}, HTTPStatus.BAD_REQUEST)
        except JournalFullError as error:
            why = f"the query does not keep up ({error}); send it again later"
            return _json({"error": why}, HTTPStatus.TOO_MANY_REQUESTS, {"Retry-After": str(_FULL_RETRY_S)})
        except OSError as error:
            why = f"it cannot be stored ({error.strerror or error}); send it again later"
            return _json({"error": why}, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": str(_DISK_RETRY_S)})
        return _json(answer, HTTPStatus.OK)

    async def _answer(self, request: web.Request) -> dict[str, object]:
        """Return the number of records, whether they were there before, and which of them are not events."""
        self._check_token(request)
        key = _key_of(request)
        encoding = _encoding_of(request)
        known = bool(key) and (key in self._in_flight or self._journal.seen(key) is not None)
        if self._journal.full and not known:
            raise JournalFullError("the journal is full")
        if self._requests >= REQUESTS_MAX:
            raise _busy()
        self._requests += 1
        try:
            with _Share(self._bodies) as share:
                body = await self._body_of(request, encoding, share)
                lines = split_lines(body)
                count, duplicate = await self._take(key, body, lines)
                return {
                    "records": count,
                    "duplicate": duplicate,
                    **self._dead_lines(await self._judge.verdict(lines), count),
                }
        finally:
            self._requests -= 1

    def _dead_lines(self, verdict: RequestVerdict, count: int) -> dict[str, object]:
        """Return the part of the answer about lines that are not events; empty if all are."""
        told: dict[str, object] = {} if verdict.looked_at == count else {"looked_at": verdict.looked_at}
        if verdict.first is not None:
            number, why = verdict.first
            told |= {"taken": count - verdict.dead, "dead_lettered": verdict.dead}
            told |= {"first_reason": f"record {number + 1}: {why}", "dead_letters": str(self._dead_letters)}
        return told

    async def _take(self, key: str, body: bytes, lines: list[bytes]) -> tuple[int, bool]:
        digest = hashlib.blake2b(body, digest_size=_DIGEST_BYTES).digest()
        if not key:
            return await self._append(lines, key, digest), False
        flight, seen = self._in_flight.get(key), self._journal.seen(key)
        other = flight.digest if flight is not None else seen.digest if seen is not None else digest
        if other != digest:
            why = "this Idempotency-Key was used with a different body before; use a new key for each body"
            raise _Refused(HTTPStatus.UNPROCESSABLE_ENTITY, why)
        if flight is not None:
            return await await_shared(flight.work), True
        if seen is not None:
            return seen.count, True
        # A separate task: other requests may wait for it when this one is gone.
        flight = self._in_flight[key] = _InFlight(digest, asyncio.create_task(self._append(lines, key, digest)))
        flight.work.add_done_callback(lambda work: self._landed(key, work))
        return await await_shared(flight.work), False

    def _landed(self, key: str, work: asyncio.Task[int]) -> None:
        del self._in_flight[key]
        if not work.cancelled():
            # Marks it as retrieved: all requests that waited may be gone.
            work.exception()

    async def _append(self, lines: list[bytes], key: str, digest: bytes) -> int:
        await self._journal.append(lines, key=key, digest=digest)
        return len(lines)

    def _check_token(self, request: web.Request) -> None:
        if self._config.token is None:
            return
        wanted = f"Bearer {self._config.token.get_secret_value()}".encode()
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if not hmac.compare_digest(wanted, given):
            why = "send the token as Authorization: Bearer"
            raise _Refused(HTTPStatus.UNAUTHORIZED, why, WWW_Authenticate="Bearer")

    async def _body_of(self, request: web.Request, encoding: str, share: _Share) -> bytes:
        """Return the decompressed body; all bodies together are limited."""
        try:
            async with asyncio.timeout(self._body_s):
                packed = b"".join([part async for part in self._parts_of(request, share)])
        except TimeoutError:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, f"the body did not arrive within {self._body_s:g} s") from None
        if encoding == "identity":
            return packed
        async with self._unpacking:
            body = await asyncio.to_thread(unpack, packed, encoding, self._config.max_body_bytes)
            share.take(len(body))
        return body

    async def _parts_of(self, request: web.Request, share: _Share) -> AsyncIterator[bytes]:
        limit_bytes = self._config.max_body_bytes
        too_large = BodyTooLargeError(f"the body is larger than {limit_bytes} bytes; split it into several requests")
        declared_bytes = request.content_length
        if declared_bytes is not None:
            if declared_bytes > limit_bytes:
                raise too_large
            share.take(declared_bytes)
        total_bytes = 0
        async for part in request.content.iter_any():
            total_bytes += len(part)
            if total_bytes > limit_bytes:
                raise too_large
            if declared_bytes is None:
                share.take(len(part))
            yield part


def _busy() -> _Refused:
    why = "too many requests at once; send it again later"
    return _Refused(HTTPStatus.TOO_MANY_REQUESTS, why, Retry_After=str(_FULL_RETRY_S))


def _key_of(request: web.Request) -> str:
    key = request.headers.get("Idempotency-Key", "")
    if len(key) > KEY_CHARS_MAX or not (key.isascii() and key.isprintable()):
        why = f"an Idempotency-Key has at most {KEY_CHARS_MAX} printable ASCII characters"
        raise _Refused(HTTPStatus.BAD_REQUEST, why)
    return key


def _encoding_of(request: web.Request) -> str:
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ENCODINGS:
        known = ", ".join(ENCODINGS)
        why = f"Content-Encoding {encoding} is not supported; send one of {known}"
        raise _Refused(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, why, Accept_Encoding=known)
    return encoding


def _json(content: dict[str, object], status: HTTPStatus, headers: dict[str, str] | None = None) -> web.Response:
    return web.Response(
        body=msgspec.json.encode(content), content_type="application/json", status=status, headers=headers
    )


def _tls_context(config: HttpSourceConfig) -> ssl.SSLContext | None:
    try:
        return None if config.tls is None else server_context(config.tls)
    except BadTlsFilesError as error:
        raise SourceError(f"source http: {error}") from error
