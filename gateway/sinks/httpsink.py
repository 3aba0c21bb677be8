"""Results as POSTs of JSON lines: at least once, each with a key that stays the same when it is sent again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import aiohttp

from gateway.config.connectors.http import HttpSinkConfig
from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import ReleasedRows, SinkError, SinkUnavailableError
from gateway.sinks.progress import ProgressFile
from gateway.sinks.rows import json_lines
from infra.clock import Clock
from infra.failpoints import reached
from infra.threads import run_to_end

_REQUEST_S: Final = 60.0
_CONNECT_S: Final = 10.0
# The longest pause, whatever the receiver asks for.
RETRY_AFTER_MAX_S: Final = 60.0
_ANSWER_BYTES: Final = 500
# Retry later; 409 means that the same key is still being processed.
_LATER: Final = frozenset({408, 409, 425, 429})


class HttpSink:
    """One POST for each run that has results; see ``Sink``.

    ``Idempotency-Key`` is ``<owner>-<first seq>-<last seq>``, so that a receiver that remembers keys stores each result
    once. A run counts as delivered once the answer is 2xx.

    Args:
        config: the sink's config.
        progress: what is delivered.
        owner: identity of the state that numbers the seqs.
        clock: time.
    """

    def __init__(self, config: HttpSinkConfig, progress: ProgressFile, *, owner: str, clock: Clock) -> None:
        self._config = config
        self._progress = progress
        self._owner = owner
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._not_before_s = 0.0

    @property
    def committed(self) -> IntervalSet:
        """See ``Sink.committed``."""
        return self._progress.committed

    async def open(self) -> None:
        """See ``Sink.open``; the receiver is only contacted when there are results."""
        await self._progress.open()

    async def commit(self, releases: Sequence[ReleasedRows], source: Position) -> None:  # noqa: ARG002 -- kept in the state_dir
        """See ``Sink.commit``."""
        try:
            for release in releases:
                if not self._progress.delivered.covers(release.first_seq, release.last_seq):
                    await self._deliver(release)
        finally:
            # What was delivered before an error is not sent again after a restart.
            await self._progress.save()

    async def _deliver(self, release: ReleasedRows) -> None:
        if release.item.num_rows:
            body = await run_to_end(lambda: json_lines(release.item))
            await self._clock.sleep_until(self._not_before_s)
            reached("sink.commit.prepared")
            await self._post(body, f"{self._owner}-{release.first_seq}-{release.last_seq}")
        self._progress.note(release.first_seq, release.last_seq)
        reached("sink.commit.visible")

    async def _post(self, body: bytes, key: str) -> None:
        """Send one request and return once it was accepted.

        Raises:
            SinkUnavailableError: not now; SinkError: it never will be.
        """
        headers = {"Content-Type": "application/x-ndjson", "Idempotency-Key": key}
        if self._config.token is not None:
            headers["Authorization"] = f"Bearer {self._config.token.get_secret_value()}"
        try:
            # A redirected POST would become a GET.
            async with self._client().post(
                self._config.url, data=body, headers=headers, allow_redirects=False
            ) as answer:
                status, retry_after = answer.status, answer.headers.get("Retry-After", "")
                said = (await answer.content.read(_ANSWER_BYTES)).decode("utf-8", "replace")
        except aiohttp.InvalidURL as error:
            raise SinkError(f"sink http: {self._config.url} is not a URL: correct it") from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SinkUnavailableError(f"{self._config.url}: {str(error) or 'no answer in time'}") from error
        if 200 <= status < 300:
            return
        told = f"{self._config.url} answered {status} {' '.join(said.split())}".rstrip()
        if status in _LATER or status >= 500:
            self._not_before_s = self._clock.now() + _wait_s(retry_after)
            raise SinkUnavailableError(told)
        raise SinkError(f"{told} to the results of events {key[len(self._owner) + 1 :]}: {_what_to_do(status)}")

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=_REQUEST_S, sock_connect=_CONNECT_S)
            self._session = aiohttp.ClientSession(timeout=timeout)
        return self._session

    async def close(self) -> None:
        """See ``Sink.close``."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def _wait_s(retry_after: str) -> float:
    """Return the pause that a receiver asks for; a date instead of seconds is not supported and counts as 0."""
    return (
        min(float(retry_after), RETRY_AFTER_MAX_S)
        if retry_after.strip().isascii() and retry_after.strip().isdigit()
        else 0.0
    )


def _what_to_do(status: int) -> str:
    if status in (401, 403):
        return "set the right token"
    if status < 400:
        return "the receiver has moved; correct sink.url"
    if status == 413:
        return "the request is too large for it; raise its limit, or lower runs.max_events"
    return "the receiver rejects them; check what it expects, then restart the gateway"
