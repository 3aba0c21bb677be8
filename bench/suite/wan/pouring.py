"""One end of a stream pours as much as the window lets through; the other one counts what comes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable

from gateway.core.exchange.lanes.credit import CreditWindow
from infra.link.client import HostLink
from infra.messages import Credit, RunMessage


class Meter:
    """Counts from the end of the warm-up on, and prints how much came in a second when the time is over.

    Args:
        warm_up_s: begins with the first count.
        measured_s: follows it.
    """

    def __init__(self, warm_up_s: float, measured_s: float) -> None:
        self._warm_up_s, self._measured_s = warm_up_s, measured_s
        self._begun_s: float | None = None
        self._counted_s: float | None = None
        self._amount = 0

    def count(self, amount: int) -> bool:
        """Count; return whether it is over."""
        now_s = time.monotonic()
        if self._begun_s is None:
            self._begun_s = now_s
        if self._counted_s is None:
            if now_s - self._begun_s >= self._warm_up_s:
                self._counted_s = now_s
            return False
        self._amount += amount
        if now_s - self._counted_s < self._measured_s:
            return False
        print(json.dumps(self._amount / (now_s - self._counted_s)), flush=True)
        return True


async def pour(link: HostLink, run: Callable[[], bytes], rows: int, window_bytes: int) -> None:
    """Act as a gateway that always has a run to send, until the link is lost.

    Args:
        link: its other end grants ``Credit``.
        run: returns the next payload.
        rows: of each payload.
        window_bytes: how much is sent before the other end has consumed it.
    """
    window, given = CreditWindow(window_bytes), asyncio.Event()

    async def hear() -> None:
        while True:
            message, _ = await link.receive()
            if isinstance(message, Credit):
                window.give(message.bytes)
                given.set()

    hearing, sent = asyncio.create_task(hear()), 0
    while not hearing.done():
        payload = run()
        while not window.take(len(payload)):
            given.clear()
            await given.wait()
        message = RunMessage(query="q", epoch=1, first_seq=sent, last_seq=sent + rows - 1, attempt=0, rows=rows)
        await link.send(message, payload)
        sent += rows
