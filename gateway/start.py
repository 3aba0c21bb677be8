"""Runs a gateway as the owner of its state_dir and its fleet, and reports how it ended."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from gateway.config.configstate import owned_by
from gateway.config.models import Config
from gateway.daemon import Daemon
from gateway.fleet.ownership import owned_fleet
from gateway.query.supervision.supervision import NoQueryRunsError
from gateway.sinks.base import FencedError
from gateway.steering.keeping import kept_on_disk
from gateway.views.http.serving import ApiError
from gateway.views.logs import acquaint, begin_logging, in_a_sentence, kept_log
from infra.clock import SystemClock
from infra.clouds.base import CloudError
from infra.link.channel import LinkLost
from infra.link.keys.trust import TrustError
from infra.service.servicemanager import ServiceManager
from infra.statefiles import StateError, queries_without_config

_LOG = logging.getLogger(__name__)


def run(
    config: Config, *, until_drained: bool, report: Path | None, keep_hosts: bool = False, record: Path | None = None
) -> int:
    """Run a gateway until SIGTERM or SIGINT or, with ``until_drained``, until everything is processed.

    Args:
        config: the whole config.
        until_drained: exit once finite sources are done, every result is in its sink and every VM is terminated.
        report: the file for the report, or None.
        keep_hosts: leave the engine hosts running for the next start; they end themselves after ``orphan_after``.
        record: the file for the trace of arrivals, or None.

    Returns:
        The exit code: 0 ok, 1 it failed, 2 the state_dir, a source, a query or the API's address is wrong.
    """
    begin_logging()
    acquaint(config)

    def run_as_owner() -> int:
        with owned_by(config), kept_log(config.gateway):
            # What ends it is logged while the file of the log is open.
            return _code_of(lambda: asyncio.run(_run_as_owner(config, until_drained, report, record, keep_hosts)))

    return _code_of(run_as_owner)


def _code_of(gateway: Callable[[], int]) -> int:
    try:
        return gateway()
    except (StateError, FencedError, ApiError, NoQueryRunsError) as error:
        _LOG.error("%s", error)
        return 2
    except (CloudError, TrustError, LinkLost, OSError) as error:
        _LOG.error("the gateway cannot continue: %s", in_a_sentence(error))
        return 1


async def _run_as_owner(config: Config, drain: bool, report: Path | None, record: Path | None, keep_hosts: bool) -> int:
    clock, manager = SystemClock(), ServiceManager()
    async with owned_fleet(config.gateway, clock) as ownership:
        warn_of_removed_queries(config)
        daemon = Daemon(config, clock, keep_hosts=keep_hosts, ownership=ownership, manager=manager)
        async with kept_on_disk(daemon.parts):
            return await daemon.run(drain, report, record)


def warn_of_removed_queries(config: Config) -> None:
    """Log which folders hold the state of queries that are not in the config."""
    for folder in queries_without_config(config.gateway.state_dir / "queries", config.queries):
        text = "%s holds the state of a query that is not in the config: remove the folder if you no longer need it"
        _LOG.warning(text, folder)
