"""Does what the scheduler commands, and tells it what came of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass

from gateway.connection import Connection, QueryRefusedError
from gateway.hosts import READY_DEADLINE_S, dial, new_host_name, user_data
from gateway.pipeline import Loss
from gateway.profiler import Profiler
from gateway.query import RunningQuery
from gateway.reaper import Reaper
from gateway.together import all_or_none
from infra.clock import Clock
from infra.clouds.base import Cloud, CloudError, Node
from infra.link.channel import LinkLost
from infra.link.shaper import ShapedRelay
from infra.link.trust import Authority, TrustError, new_token
from infra.messages import Runtime
from policies.signals import (
    Command,
    DrainVm,
    Event,
    SetRoute,
    StartVm,
    TerminateVm,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
)

_LOG = logging.getLogger(__name__)
_DRAIN_POLL_S = 0.05


@dataclass(slots=True)
class _Vm:
    """A VM as the actuator holds it; every field is there once the launch has come so far."""

    name: str
    ordered_s: float
    node: Node | None = None
    connection: Connection | None = None
    relay: ShapedRelay | None = None
    launched: bool = False
    ending: bool = False
    task: asyncio.Task[None] | None = None
    draining: asyncio.Task[None] | None = None


class Actuator:
    """Runs commands as tasks; each ends in the event that the scheduler waits for.

    Args:
        cloud: where VMs come from.
        authority: the gateway's.
        tags: put on every VM before it can cost anything.
        queries: the running queries.
        home_runtime: returns what a VM must run, to the letter.
        orphan_after_s: a VM without a gateway ends itself after so long.
        shape: (delay in s, rate in bytes/s) of the emulated link, or None.
        profiler: hears of lanes that end.
        clock: time.
        emit: takes events; called on the event loop.
        paid: returns once what a launch costs is written down; OSError if it cannot be.

    Attributes:
        boots: how the VMs so far booted.
        reaper: gives machines back, also those that nobody knows.
        failure: a mistake of ours that ended one of its tasks; the gateway cannot go on.
    """

    def __init__(
        self,
        cloud: Cloud,
        authority: Authority,
        *,
        tags: Mapping[str, str],
        queries: Mapping[str, RunningQuery],
        home_runtime: Callable[[], Runtime],
        orphan_after_s: float,
        shape: tuple[float, float] | None,
        profiler: Profiler,
        clock: Clock,
        emit: Callable[[Callable[[str, float], Event]], None],
        paid: Callable[[], Awaitable[None]],
    ) -> None:
        self._cloud = cloud
        self._authority = authority
        self._queries = queries
        self._home_runtime = home_runtime
        self._orphan_after_s = orphan_after_s
        self._shape = shape
        self._profiler = profiler
        self._clock = clock
        self._emit = emit
        self._paid = paid
        self._vms: dict[str, _Vm] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self.reaper = Reaper(cloud, tags, lambda: self._vms.keys(), clock)
        self.boots: set[str] = set()
        self.failure: BaseException | None = None

    def execute(self, commands: Sequence[Command]) -> None:
        """Begin ``commands``, in order."""
        for command in commands:
            match command:
                case SetRoute():
                    self._queries[command.query].pipeline.set_shares(dict(command.shares))
                case StartVm():
                    vm = self._vms[command.vm] = _Vm(command.vm, self._clock.now())
                    vm.task = self._begin(self._launch(vm), f"launch {vm.name}")
                case DrainVm():
                    vm = self._vms[command.vm]
                    vm.draining = self._begin(self._drain(vm), f"drain {vm.name}")
                case TerminateVm():
                    ending = self._begin(self._terminate(command.vm), f"end {command.vm}")
                    self._endings.add(ending)
                    ending.add_done_callback(self._endings.discard)

    def _begin(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._note)
        return task

    def _note(self, ended: asyncio.Task[None]) -> None:
        error = None if ended.cancelled() else ended.exception()
        if error is not None:
            _LOG.error("%s: a mistake of the gateway's own", ended.get_name(), exc_info=error)
            self.failure = self.failure or error

    def lose(self, name: str, reason: str) -> None:
        """Give up a VM on which a query cannot go on: it is taken for lost, and so ended."""
        vm = self._vms.get(name)
        if vm is not None and vm.connection is not None and not vm.ending:
            vm.connection.link.lose(reason)

    def end_leftovers(self) -> None:
        """Begin to give back the VMs of an earlier gateway, and whatever is left alone later.

        Launches wait for the first; the queries need not.
        """
        self.reaper.watch().add_done_callback(self._note)

    # ------------------------------------------------------------------------------------------------------ launch

    async def _launch(self, vm: _Vm) -> None:
        try:
            connection = await self._bring_up(vm)
        except (CloudError, LinkLost, TrustError, QueryRefusedError, OSError) as error:
            _LOG.warning("launch of %s failed: %s", vm.name, error)
            reason = str(error)
            self._emit(lambda event_id, at_s: VmFailed(event_id=event_id, at_s=at_s, vm=vm.name, reason=reason))
            return
        vm.launched = True
        self._emit(
            lambda event_id, at_s: VmReady(event_id=event_id, at_s=at_s, vm=vm.name, billing_since_s=vm.ordered_s)
        )
        why = await connection.lost()
        if not vm.ending:
            await self._detach(vm, Loss(why, self._clock.now()))
            self._emit(lambda event_id, at_s: VmLost(event_id=event_id, at_s=at_s, vm=vm.name, reason=why))

    async def _bring_up(self, vm: _Vm) -> Connection:
        await self.reaper.first_sweep()
        await self._paid()
        token = new_token()
        host = new_host_name(vm.name)
        text = user_data(self._authority, host, token, self._orphan_after_s)
        vm.node = node = await self._cloud.create(vm.name, self.reaper.tags, text)
        self.boots.add(node.boot)
        address = (node.address, node.port)
        if self._shape is not None:
            vm.relay = ShapedRelay(address, *self._shape, self._clock)
            address = await vm.relay.start()
        # A warm host was enrolled when it was prepared; the token of this launch is not for it.
        spend = token if node.host == host else None
        vm.connection = connection = await dial(vm.name, node.host, address, self._authority, spend, self._clock)
        await connection.wait_ready(READY_DEADLINE_S)
        differences = self._home_runtime().differences(connection.link.hello.runtime)
        if differences:
            raise CloudError(f"{vm.name} runs something else than home ({'; '.join(differences)}): make them equal")
        await all_or_none(*(query.attach(connection) for query in self._queries.values() if query.switchable))
        return connection

    # ------------------------------------------------------------------------------------------------------- ending

    async def _drain(self, vm: _Vm) -> None:
        """Wait until nothing is open on the VM; its routes were taken away before."""
        while not all(query.pipeline.lane_idle(vm.name) for query in self._queries.values()):
            await self._clock.sleep_until(self._clock.now() + _DRAIN_POLL_S)
        if not vm.ending:
            self._emit(lambda event_id, at_s: VmDrained(event_id=event_id, at_s=at_s, vm=vm.name))

    async def _terminate(self, name: str) -> None:
        vm = self._vms.pop(name, None)
        if vm is not None:
            await self._end(vm)
        self._emit(lambda event_id, at_s: VmGone(event_id=event_id, at_s=at_s, vm=name))

    async def _end(self, vm: _Vm) -> None:
        """Let go of a VM, wherever it is in its life, and give its machine back whatever else goes wrong."""
        vm.ending = True
        # A launch is ended before its lanes are taken out, so that it adds none after that. Once it is done its task
        # watches the link and, when that is lost, takes the lanes out: that must not be broken off half-way.
        for task in (vm.draining, None if vm.launched else vm.task):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        try:
            await self._detach(vm)
            if vm.connection is not None:
                await vm.connection.close("the VM is given back")
            if vm.relay is not None:
                await vm.relay.close()
        finally:
            if vm.node is not None:
                await self.reaper.destroy(vm.node)

    async def _detach(self, vm: _Vm, loss: Loss | None = None) -> None:
        for query in self._queries.values():
            with contextlib.suppress(LinkLost):
                await query.detach(vm.name, loss)
        self._profiler.lane_closed(vm.name)

    @property
    def settled(self) -> bool:
        """Whether no VM is left."""
        return not self._vms and not self._endings and self.reaper.settled

    async def give_back_all(self) -> None:
        """Give every VM back without asking the scheduler: for a gateway that cannot go on."""
        left = [self._vms.pop(name) for name in tuple(self._vms)]
        await asyncio.gather(*(self._end(vm) for vm in left), *self._endings, return_exceptions=True)
        await self.reaper.stop()
