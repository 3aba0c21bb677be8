"""Asks, from inside a spot VM, whether its provider is about to reclaim it."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from infra.clock import Clock

_LOG: Final = logging.getLogger(__name__)
METADATA: Final = "http://169.254.169.254"
_POLL_S: Final = 5.0
_ANSWER_S: Final = 2.0
_ANSWER_BYTES: Final = 4096
_TOKEN_TTL_S: Final = 21_600
_GCE_LEFT_S: Final = 30.0


async def reclaimed_in_s(provider: str, clock: Clock, metadata: str = METADATA) -> float:
    """Return the seconds until this VM is reclaimed, once its provider announces it; asks every 5 s until then.

    A metadata service that does not answer counts as no announcement: the VM may then be lost without notice.

    Args:
        provider: ``ec2`` or ``gce``.
        clock: paces the requests, and converts the provider's time into seconds from now.
        metadata: URL of the metadata service.

    Raises:
        ValueError: the provider gives no notice.
    """
    if provider not in _ASKS:
        raise ValueError(f"provider {provider} gives no notice before it reclaims a VM")
    silent = False
    timeout = ClientTimeout(total=_ANSWER_S)
    async with ClientSession(metadata, timeout=timeout) as session:
        while True:
            try:
                left_s = await _ASKS[provider](session, clock)
            except (ClientError, TimeoutError, ValueError, KeyError) as error:
                if not silent:
                    _LOG.warning("cannot check whether the provider reclaims this VM: %s: %r", metadata, error)
                silent = True
            else:
                silent = False
                if left_s is not None:
                    return left_s
            await clock.sleep_until(clock.now() + _POLL_S)


async def _ask_ec2(session: ClientSession, clock: Clock) -> float | None:
    """Ask version 2 of the service. It needs a token; we get a new one each time, so that it never expires."""
    wanted = {"X-aws-ec2-metadata-token-ttl-seconds": str(_TOKEN_TTL_S)}
    async with session.put("/latest/api/token", headers=wanted) as answer:
        answer.raise_for_status()
        token = (await answer.content.read(_ANSWER_BYTES)).decode()
    where = "/latest/meta-data/spot/instance-action"
    async with session.get(where, headers={"X-aws-ec2-metadata-token": token}) as answer:
        if answer.status == 404:
            return None
        answer.raise_for_status()
        document = json.loads(await answer.content.read(_ANSWER_BYTES))
    return max(0.0, datetime.fromisoformat(str(document["time"])).timestamp() - clock.wall())


async def _ask_gce(session: ClientSession, clock: Clock) -> float | None:  # noqa: ARG001 -- as the others
    """Ask whether this VM was preempted; the provider says so 30 s before it stops the VM."""
    where = "/computeMetadata/v1/instance/preempted"
    async with session.get(where, headers={"Metadata-Flavor": "Google"}) as answer:
        answer.raise_for_status()
        text = (await answer.content.read(_ANSWER_BYTES)).decode().strip()
    return _GCE_LEFT_S if text.upper() == "TRUE" else None


_ASKS: Final[dict[str, Callable[[ClientSession, Clock], Awaitable[float | None]]]] = {
    "ec2": _ask_ec2,
    "gce": _ask_gce,
}
