"""Reconnects to a VM whose link was lost: a cut of the WAN ends after a while, and the VM is booted already."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.hosts.connection import Connection, QueryRefusedError
from infra.clock import Clock
from infra.clouds.base import CloudError
from infra.link.channel import LinkLost
from infra.link.keys.trust import TrustError

_LOG = logging.getLogger(__name__)
# Short, so that the first packets after a cut are not those of a connection attempt that has backed off for long; a
# full line needs more time.
_DIAL_S: Final = 3.0
_DIAL_ROUND_TRIPS: Final = 20.0
_PAUSE_S: Final = 0.2


async def linked_again(
    name: str,
    dial: Callable[[float], Awaitable[Connection]],
    open_queries: Callable[[Connection], Awaitable[None]],
    take_out: Callable[[], Awaitable[None]],
    *,
    round_trip_s: float,
    within_s: float,
    clock: Clock,
) -> Connection | None:
    """Return a new link on which all queries are open; None if there is no hope of one.

    Silence is retried. A VM that refuses the connection has no engine host any more; one that refuses the gateway or a
    query would refuse again.

    Args:
        name: the VM's.
        dial: connects within a number of seconds, or raises.
        open_queries: opens all queries on a link.
        take_out: removes the VM's lanes again when that failed half-way.
        round_trip_s: of the lost link.
        within_s: the host ends itself after this time without a gateway.
        clock: time.
    """
    began_s = clock.now()
    dial_s = max(_DIAL_S, _DIAL_ROUND_TRIPS * round_trip_s)
    while clock.now() < began_s + within_s:
        try:
            connection = await dial(dial_s)
        except TrustError as error:
            _LOG.warning("reconnecting to %s failed: %s", name, error)
            return None
        except LinkLost as error:
            # A reset is different: a firewall on the way may cause it, or a host with too many connections.
            if isinstance(error.__cause__, ConnectionRefusedError):
                return None
        else:
            if await _opened(name, connection, open_queries, take_out):
                _LOG.warning("reconnected to %s after %.1f s", name, clock.now() - began_s)
                return connection
            if connection.alive:
                await connection.close("a query cannot be opened again")
                return None
        await clock.sleep_until(clock.now() + _PAUSE_S)
    return None


async def _opened(
    name: str,
    connection: Connection,
    open_queries: Callable[[Connection], Awaitable[None]],
    take_out: Callable[[], Awaitable[None]],
) -> bool:
    try:
        await open_queries(connection)
    except (LinkLost, QueryRefusedError, CloudError, TimeoutError) as error:
        _LOG.warning("the queries could not be reopened on %s: %s", name, error)
        await take_out()
        return False
    except BaseException:
        await connection.close("the VM is being terminated")
        raise
    return True
