"""Blocking calls to a provider: each in its own thread, with a deadline and a few retries.

libcloud has no deadline for a whole call, and one driver serves one thread at a time. So each thread has its own
driver. When the deadline is over, the caller stops waiting, although the thread cannot be stopped.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_after_attempt, wait_random_exponential

from infra.clock import Clock
from infra.clouds.base import ThrottledError, UnavailableError
from infra.clouds.providers.errors import our_errors

T = TypeVar("T")
_LOG: Final = logging.getLogger(__name__)
_THREADS: Final = 4
_TRIES: Final = 6
_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 20.0
_TOLD_MAX_S: Final = 120.0
"""If a provider asks for a longer pause than this, the call fails at once instead of waiting."""


class Calls:
    """Calls to one provider.

    Args:
        connect: creates a driver; called once for each thread.
        where: provider and place, for people.
        clock: measures pauses.
        call_s: the deadline of a call.
    """

    def __init__(self, connect: Callable[[], Any], where: str, clock: Clock, call_s: float) -> None:
        self._connect = connect
        self._where = where
        self._clock = clock
        self._call_s = call_s
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="cloud")
        self._own = threading.local()
        self._running: set[asyncio.Future[Any]] = set()

    async def ask(self, what: str, call: Callable[[Any], T], on_retry: Callable[[str], None] | None = None) -> T:
        """Return what ``call`` returns, given a driver; throttled and failed calls are retried.

        Args:
            what: for people.
            call: must be safe to repeat.
            on_retry: called with the reason of each retry.

        Raises:
            CloudError: of the kind that fits, after the last try.
        """
        retrying = AsyncRetrying(
            retry=retry_if_exception(_worth_trying_again),
            stop=stop_after_attempt(_TRIES),
            wait=_pause_s,
            sleep=self._sleep,
            before_sleep=lambda state: self._say(what, state, on_retry),
            reraise=True,
        )
        return await retrying(self.ask_once, call)

    async def ask_once(self, call: Callable[[Any], T]) -> T:
        """Return what ``call`` returns, given a driver.

        Raises:
            CloudError: of the kind that fits; also UnavailableError after the deadline, and then the call may still
                run.
        """

        def work() -> T:
            with our_errors(self._where):
                if not hasattr(self._own, "driver"):
                    self._own.driver = self._connect()
                return call(self._own.driver)

        running = asyncio.get_running_loop().run_in_executor(self._threads, work)
        self._running.add(running)
        running.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._call_s):
                return await asyncio.shield(running)
        except TimeoutError as error:
            raise UnavailableError(f"{self._where} did not answer within {self._call_s:g} s") from error

    async def quiet(self, within_s: float) -> bool:
        """Wait until no call runs in any thread, abandoned calls included; return whether that is so."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=within_s)
        return not self._running

    def close(self) -> None:
        """Accept no more calls; those that run end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, future: asyncio.Future[Any]) -> None:
        self._running.discard(future)
        if not future.cancelled():
            future.exception()  # its caller stopped waiting for it, and logged that

    async def _sleep(self, pause_s: float) -> None:
        await self._clock.sleep_until(self._clock.now() + pause_s)

    def _say(self, what: str, state: RetryCallState, on_retry: Callable[[str], None] | None) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        pause_s = 0.0 if state.next_action is None else float(state.next_action.sleep)
        _LOG.warning("%s (try %d of %d): %s; retry in %.1f s", what, state.attempt_number, _TRIES, error, pause_s)
        if on_retry is not None:
            on_retry(f"{error}; retry in {pause_s:.0f} s")


def _worth_trying_again(error: BaseException) -> bool:
    return isinstance(error, ThrottledError | UnavailableError) and error.after_s <= _TOLD_MAX_S


def _pause_s(state: RetryCallState) -> float:
    """Return how long to wait: as long as the provider said, otherwise longer each time, with jitter."""
    error = None if state.outcome is None else state.outcome.exception()
    own_s = wait_random_exponential(multiplier=_PAUSE_S, max=_PAUSE_MAX_S)(state)
    return max(own_s, error.after_s) if isinstance(error, ThrottledError | UnavailableError) else own_s
