"""Terminates VMs: on request, and each minute those with the gateway's tag that the gateway does not use."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping

from infra.clock import Clock
from infra.clouds.base import Cloud, CloudError, Node, ThrottledError, UnavailableError
from infra.retries import FailedTry, Retries
from infra.together import end_tasks

_LOG = logging.getLogger(__name__)
_SWEEP_S = 60.0
_EARLY_SWEEP_S = 15.0
_EARLY_S = 60.0
"""A VM that an earlier gateway ordered just before it died may appear in the provider's list only now."""
_RETRY_S = 5.0
_DESTROY = Retries(first_s=2.0, most_s=8.0, tries=5)
_TOLD_MOST_S = 900.0
"""If a provider throttles requests, the reaper waits for at most this long: a VM may be billed meanwhile."""
_RUN_TAG = "spillway-run"


class Reaper:
    """Terminates VMs that no gateway uses.

    The reaper terminates a VM of an earlier gateway at first sight, unless this gateway adopts it. It terminates an
    unused VM of this gateway when the second sweep finds it too: at the first the VM may still be launching.

    Args:
        cloud: where the machines are.
        tags: the gateway's own; they stay the same after a restart.
        known: returns the names of the VMs that are in use.
        clock: time.
        take_over: called once for each VM of an earlier gateway; returns whether the VM is in use from now on, until
            ``destroy``.

    Attributes:
        tags: for each new VM: the gateway's, and one for this run of it, so that equal names are not confused.
        not_terminated: VMs that the cloud did not terminate in spite of several requests; by id.
    """

    def __init__(
        self,
        cloud: Cloud,
        tags: Mapping[str, str],
        known: Callable[[], Collection[str]],
        clock: Clock,
        take_over: Callable[[Node], Awaitable[bool]] | None = None,
    ) -> None:
        self._cloud = cloud
        self._gateway_tags = dict(tags)
        self._known = known
        self._clock = clock
        self._take_over = take_over
        self._asked: set[str] = set()
        self._taken_over: set[str] = set()
        self._run = secrets.token_hex(8)
        self._suspects: set[str] = set()
        self._tried = asyncio.Event()
        self._sweeping: asyncio.Task[None] | None = None
        self.tags: Mapping[str, str] = {**self._gateway_tags, _RUN_TAG: self._run}
        self.not_terminated: dict[str, str] = {}

    def watch(self) -> asyncio.Task[None]:
        """Begin to sweep, at once, more often in the first minute, then each minute; return the sweeping task."""
        self._sweeping = asyncio.create_task(self._sweep_for_ever(), name="reaper")
        return self._sweeping

    async def first_sweep(self) -> None:
        """Return once the first sweep, if one was begun, has handled an earlier gateway's VMs, or failed."""
        if self._sweeping is not None:
            await self._tried.wait()

    @property
    def settled(self) -> bool:
        """Whether the first sweep is over, if one was begun."""
        return self._sweeping is None or self._tried.is_set()

    async def stop(self) -> None:
        """Stop sweeping, and terminate every VM that is left with our tag."""
        if self._sweeping is None:
            return
        await end_tasks(self._sweeping)
        if not self._sweeping.cancelled() and (error := self._sweeping.exception()) is not None:
            _LOG.error("the search for VMs that no gateway uses failed: internal error", exc_info=error)
        try:
            for node in await self._cloud.list(self._gateway_tags):
                _LOG.warning("%s (%s) still exists at shutdown: terminating it", node.name, node.id)
                await self.destroy(node)
        except (CloudError, OSError) as error:
            _LOG.error("cannot check whether any VM still exists (%s): check with the provider", error)

    async def _sweep_for_ever(self) -> None:
        early_until_s = self._clock.now() + _EARLY_S
        while True:
            try:
                await self.sweep()
                wait_s = _EARLY_SWEEP_S if self._clock.now() < early_until_s else _SWEEP_S
            except (CloudError, OSError) as error:
                wait_s = max(_RETRY_S, _told_s(error))
                _LOG.warning("the VMs cannot be listed; retrying in %g s: %s", wait_s, error)
            finally:
                self._tried.set()
            await self._clock.sleep_until(self._clock.now() + wait_s)

    async def sweep(self) -> None:
        """Terminate VMs that are neither known nor adopted.

        Raises:
            CloudError: the cloud does not list its VMs.
        """
        nodes = [node for node in await self._cloud.list(self._gateway_tags) if node.id not in self._taken_over]
        known = self._known()
        unknown = [node for node in nodes if not (self._is_ours(node) and node.name in known)]
        lost = [node for node in unknown if not self._is_ours(node) or node.id in self._suspects]
        self._suspects = {node.id for node in unknown}
        await asyncio.gather(*(self._end_unless_taken_over(node) for node in lost))

    async def _end_unless_taken_over(self, node: Node) -> None:
        if self._take_over is not None and not self._is_ours(node) and node.id not in self._asked:
            self._asked.add(node.id)
            self._taken_over.add(node.id)  # before the await: it may be destroyed meanwhile
            if await self._take_over(node):
                return
            self._taken_over.discard(node.id)
        _LOG.warning("no gateway uses %s (%s): terminating it", node.name, node.id)
        await self.destroy(node)

    def _is_ours(self, node: Node) -> bool:
        return node.tags.get(_RUN_TAG) == self._run

    async def destroy(self, node: Node) -> None:
        """Terminate a VM. If that fails, log an error; the next sweep tries again."""
        self._taken_over.discard(node.id)
        what = f"{node.name} ({node.id})"

        def heard(failed: FailedTry) -> None:
            if failed.is_news:
                _LOG.warning("%s could not be terminated (try %d): %s", what, failed.number, failed.error)

        try:
            await _DESTROY.retry(
                lambda: self._cloud.destroy(node.id),
                self._clock,
                (CloudError, OSError),
                heard=heard,
                at_least_s=_told_s,
            )
        except (CloudError, OSError) as error:
            self.not_terminated[node.id] = what
            _LOG.warning("%s could not be terminated (last try): %s", what, error)
            _LOG.error("%s could not be terminated: it may still cost money; terminate it by hand", what)
        else:
            self.not_terminated.pop(node.id, None)


def _told_s(error: BaseException) -> float:
    """Return the pause that the provider asks for."""
    return min(error.after_s, _TOLD_MOST_S) if isinstance(error, ThrottledError | UnavailableError) else 0.0
