"""Lets a running gateway take in another config: its queries, its scheduler and its measurements."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.config.models import Config
from gateway.config.settings import scheduler_settings
from gateway.core.decide.profiler import Profiler
from gateway.deciding import Deciding
from gateway.fleet.actuator import Actuator
from gateway.query.running import RunningQuery
from gateway.query.supervision.home import Home
from gateway.query.supervision.making import QueryMaker
from gateway.query.supervision.supervision import Supervision
from gateway.reloading.changes import Changes
from infra.clock import Clock

_LOG = logging.getLogger(__name__)
_POLL_S: Final = 0.05
DELIVER_S: Final = 30.0
"""So long a query that is removed may deliver what it has read; the rest is kept in the state_dir."""


@dataclass(slots=True, kw_only=True)
class LiveGateway:
    """The parts of a gateway that another config changes.

    Attributes:
        config: the present config.
        phase: returns the phase of the gateway.
        queries: by name; all parts of the gateway share this dict.
        supervision: of the queries.
        maker: makes queries.
        home: the private engine hosts.
        deciding: the scheduler and its policies.
        profiler: measures the queries.
        actuator: has the VMs.
        slot: held while a slot is evaluated.
        clock: time.
    """

    config: Config
    phase: Callable[[], str]
    queries: dict[str, RunningQuery]
    supervision: Supervision
    maker: QueryMaker
    home: Home
    deciding: Deciding
    profiler: Profiler
    actuator: Actuator
    slot: asyncio.Lock
    clock: Clock

    def why_not_now(self) -> str:
        """See ``Reloadable``."""
        return "" if self.phase() == "running" else f"the gateway is {self.phase()}: try again when it is running"

    async def check(self, config: Config, names: tuple[str, ...]) -> None:
        """See ``Reloadable``."""
        if names:
            host = await self.home.any_host()
            for name in names:
                await self.maker.make(name, config).check(host)

    async def take_in(self, config: Config, changed: Changes) -> None:
        """See ``Reloadable``."""
        await asyncio.gather(*(self._deliver(name) for name in changed.removed))
        for name in changed.stopped:
            await self.supervision.of[name].stop("its config has changed")
        async with self.slot:
            self._switch(config, changed)

    async def _deliver(self, name: str) -> None:
        """Let a query that is removed deliver what it has read."""
        query, ends_s = self.queries[name], self.clock.now() + DELIVER_S
        await query.stop_reading()
        while query.started and not query.idle and self.clock.now() < ends_s:
            await self.clock.sleep_until(self.clock.now() + _POLL_S)
        if not query.idle:
            text = "query %s is removed before all that it has read was delivered; the rest is kept in the state_dir"
            _LOG.warning(text, name)

    def _switch(self, config: Config, changed: Changes) -> None:
        """Let all parts use the new config; nothing else happens meanwhile."""
        self.config = config
        for name in changed.removed:
            del self.queries[name]
            self.actuator.forget(name)
        for name in changed.opened:
            old = self.queries.get(name)
            self.queries[name] = self.maker.make(name, config, old)
            if old is not None:
                self.queries[name].on_run = old.on_run
        for name in changed.in_place:
            self.queries[name].config = config.queries[name]
            self.supervision.of[name].adjust(config.queries[name].on_failure.terms)
        self.profiler.change({name: query.qos.statistic for name, query in config.queries.items()})
        self.deciding.change(scheduler_settings(config))
        self.actuator.limit(config.cloud.max_vms)
        self.supervision.change(changed.removed, [self.queries[name] for name in changed.opened], config)
