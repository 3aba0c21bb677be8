"""Keeps on disk what the gateway shows of itself, for the time when it does not run."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import Final

from gateway.steering.parts import GatewayParts
from gateway.steering.seeing import Seeing
from gateway.views.http.models import QueriesAnswer, VmsAnswer
from gateway.views.lastseen import LastSeen, write_last_seen
from infra.threads import run_to_end
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
KEPT_EACH_S: Final = 30.0


@contextlib.asynccontextmanager
async def kept_on_disk(parts: GatewayParts, each_s: float = KEPT_EACH_S) -> AsyncIterator[None]:
    """Write what the gateway shows while it runs, and once more at the end; a disk error does not end the gateway.

    Args:
        parts: of the gateway.
        each_s: how often.
    """
    task = asyncio.create_task(_keep(parts, each_s), name="keep what is shown")
    try:
        yield
    finally:
        await end_tasks(task)
        await _write(parts, ended=True)


async def _keep(parts: GatewayParts, each_s: float) -> None:
    while True:
        await parts.clock.sleep_until(parts.clock.now() + each_s)
        await _write(parts, ended=False)


async def _write(parts: GatewayParts, *, ended: bool) -> None:
    """Write it, unless this gateway has not run yet: then what an earlier one showed stays."""
    if not parts.open:
        return
    seen = last_seen(parts, ended=ended)
    try:
        await run_to_end(lambda: write_last_seen(parts.config.gateway.state_dir, seen))
    except OSError as error:
        _LOG.warning("what spillway status shows after the end was not written: %s", error)


def last_seen(parts: GatewayParts, *, ended: bool) -> LastSeen:
    """Return what the gateway shows now; ``ended``: it does not run any more."""
    seeing = Seeing(parts)
    answers = {
        "status": seeing.overview(),
        "queries": QueriesAnswer(queries=seeing.queries()),
        "vms": VmsAnswer(vms=seeing.vms()),
        "costs": seeing.costs(),
    }
    return LastSeen(
        wall_s=parts.clock.wall(),
        ended=ended,
        status=json.loads(seeing.status()),
        answers={name: answer.model_dump() for name, answer in answers.items()},
    )
