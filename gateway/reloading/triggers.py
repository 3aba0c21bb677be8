"""What makes a gateway read its config again: a signal, or a change of the file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine

from gateway.reloading.reloader import Reloader, ReloadRefusedError
from gateway.reloading.watching import watch
from infra.clock import Clock
from infra.service.servicemanager import ServiceManager
from infra.together import end_tasks


class ReloadTriggers:
    """Reloads in the background.

    Args:
        reloader: of the gateway.
        manager: is told when it begins and ends, if the gateway runs.
        phase: returns the phase of the gateway.
        clock: time.
        on_mistake: called with the text of an internal error.
    """

    def __init__(
        self,
        reloader: Reloader,
        manager: ServiceManager,
        phase: Callable[[], str],
        clock: Clock,
        on_mistake: Callable[[str], None],
    ) -> None:
        self._reloader = reloader
        self._manager = manager
        self._phase = phase
        self._clock = clock
        self._on_mistake = on_mistake
        self._tasks: set[asyncio.Task[None]] = set()

    def now(self) -> None:
        """Reload once."""
        self._begin(self._reload())

    def watch(self) -> None:
        """Reload each time the config's file changes, or one that it names."""
        self._begin(watch(lambda: self._reloader.gateway.config.files, self._clock, self._reload))

    async def end(self) -> None:
        """Reload no more."""
        await end_tasks(*self._tasks)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work, name="reload the config")
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_mistake(f"internal error while the config was reloaded: {error!r}")

    async def _reload(self) -> None:
        # A gateway that still starts refuses, and must not seem to be ready.
        runs = self._phase() == "running"
        if runs:
            self._manager.reloading()
        with contextlib.suppress(ReloadRefusedError):  # it is logged
            await self._reloader.reload()
        if runs:
            self._manager.phase(self._phase())
