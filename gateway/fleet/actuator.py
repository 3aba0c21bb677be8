"""Carries out the scheduler's commands, and reports the outcome to it as events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence

from gateway.core.decide.profiler import Profiler
from gateway.fleet.launchfailure import failure_of
from gateway.fleet.reaper import Reaper
from gateway.fleet.vm import Vm
from gateway.fleet.vmqueries import VmQueries
from gateway.hosts.connection import Connection, QueryRefusedError
from gateway.hosts.enrol import (
    DIAL_S,
    READY_DEADLINE_S,
    Dial,
    InService,
    dial,
    new_host_name,
    user_data,
)
from gateway.hosts.relink import linked_again
from gateway.query.flow.dispatcher import Loss
from gateway.query.running import RunningQuery
from infra.clock import Clock
from infra.clouds.base import Cloud, CloudError, Learns, LimitsVms, Node
from infra.link.channel import LinkLost
from infra.link.keys.trust import Authority, TrustError, new_token
from infra.link.shaper import ShapedRelay
from infra.runtime import Runtime
from infra.together import end_tasks
from policies.money.billing import NO_TRAFFIC, Traffic
from policies.signals import (
    Command,
    DrainVm,
    Event,
    SetRoute,
    SetShed,
    StartVm,
    TerminateVm,
    VmAdopted,
    VmDrained,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)

_LOG = logging.getLogger(__name__)
_DRAIN_POLL_S = 0.05


class Actuator:
    """Runs commands as tasks; each ends with the event that the scheduler waits for.

    Args:
        cloud: the provider.
        authority: the gateway's authority.
        tags: set on every VM before it can cost anything.
        queries: the running queries.
        home_runtime: returns the runtime that a VM must have, exactly.
        orphan_after_s: a VM without a gateway ends itself after this time.
        shape: (delay in s, rate in bytes/s) of the emulated link, or None.
        profiler: notified of lanes that end.
        clock: time.
        emit: receives events; called on the event loop.
        paid: returns once the cost of a launch is on disk; OSError if it cannot be written.
        size_prices: USD per hour, of sizes with a price of their own.
        dial: connects to a VM.
        inherited: returns the VMs for which an earlier gateway had reserved money; its other VMs are terminated.
        owns: see ``Reaper``.

    Attributes:
        boots: how the VMs so far booted.
        reaper: terminates VMs, including unknown ones.
        failure: a bug of ours that ended one of its tasks; the gateway cannot continue.
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
        inherited: Callable[[], Collection[str]] = tuple,
        size_prices: Mapping[str, float] | None = None,
        dial: Dial = dial,
        owns: Callable[[], bool] = lambda: True,
    ) -> None:
        self._link_up = dial
        self._cloud = cloud
        self._authority = authority
        self._queries = queries
        self._on_vms = VmQueries(queries, emit)
        self._home_runtime = home_runtime
        self._orphan_after_s = orphan_after_s
        self._shape = shape
        self._profiler = profiler
        self._clock = clock
        self._emit = emit
        self._paid = paid
        self._inherited = inherited
        self._size_prices = size_prices or {}
        self._booked_s = clock.now()
        self._queries_are_open = asyncio.Event()
        self._vms: dict[str, Vm] = {}
        self._endings: set[asyncio.Task[None]] = set()
        self.reaper = Reaper(cloud, tags, lambda: self._vms.keys(), clock, self._take_over, owns)
        self.boots: set[str] = set()
        self.failure: BaseException | None = None

    def execute(self, commands: Sequence[Command]) -> None:
        """Start ``commands``, in order."""
        for command in commands:
            match command:
                case SetRoute():
                    self._queries[command.query].set_shares(dict(command.shares))
                case SetShed():
                    self._queries[command.query].set_shed(command.share)
                case StartVm():
                    vm = self._vms[command.vm] = Vm(command.vm, self._clock.now())
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
            _LOG.error("%s: internal error", ended.get_name(), exc_info=error)
            self.failure = self.failure or error

    def admit(self, query: str) -> None:
        """Open a query, which is now open at home, on the VMs that serve other queries already."""
        for vm in self._vms.values():
            if vm.launched and not vm.ending and vm.connection is not None and vm.connection.alive:
                work = self._on_vms.open_missing(vm.name, vm.connection, query)
                self._begin(work, f"open {query} on {vm.name}")

    def forget(self, query: str) -> None:
        """Note that a query, which is closed, is gone."""
        self._on_vms.forget(query)

    def limit(self, max_vms: int) -> None:
        """Let the cloud have so many VMs, if it counts them itself."""
        if isinstance(self._cloud, LimitsVms):
            self._cloud.max_vms = max_vms

    def keep_off(self, query: str, name: str, reason: str) -> None:
        """Close a query on a VM where it cannot continue. A VM that serves no other query counts as lost and ends."""
        vm = self._vms.get(name)
        if vm is not None and vm.connection is not None and not vm.ending:
            self._begin(self._keep_off(vm, vm.connection, query, reason), f"keep {query} off {name}")

    async def _keep_off(self, vm: Vm, connection: Connection, query: str, reason: str) -> None:
        if not await self._on_vms.keep_off(query, vm.name, reason) and not vm.ending:
            vm.given_up = True
            connection.link.lose(reason)

    def handle_earlier_vms(self) -> None:
        """Begin to adopt or terminate the VMs of an earlier gateway, and later to terminate VMs that nothing uses.

        Launches wait for the first sweep; the queries do not.
        """
        self.reaper.watch().add_done_callback(self._note)

    def queries_are_open(self) -> None:
        """Open the queries on VMs that were adopted."""
        self._queries_are_open.set()

    # ---------------------------------------------------------------------------------------------------- adoption

    async def _take_over(self, node: Node) -> bool:
        """Adopt an earlier gateway's VM if it was paid for and its engine host, which is enrolled, still answers.

        Connect to it at once, since it would end itself as an orphan; it gets the queries once they are open.
        """
        booked_as = {node.name, node.host} & set(self._inherited())
        if not booked_as or node.state != "running":
            return False
        age_s = max(0.0, self._clock.wall() - node.created_at_s)
        vm = Vm(node.host, self._clock.now() - age_s, node)
        try:
            connection = await self._dial(vm, node, None)
        except (LinkLost, TrustError, OSError) as error:
            _LOG.info("%s (%s) of an earlier gateway cannot be adopted: %s", node.name, node.id, error)
            await vm.close_link()
            return False
        self._vms[vm.name] = vm
        self.boots.add(node.boot)
        vm.task = self._begin(self._adopt(vm, connection), f"adopt {vm.name}")
        return True

    async def _adopt(self, vm: Vm, connection: Connection) -> None:
        await self._queries_are_open.wait()
        try:
            await self._open_queries(vm, connection)
        except (CloudError, LinkLost, QueryRefusedError, OSError) as error:
            _LOG.warning("%s of an earlier gateway cannot be adopted: %s", vm.name, error)
            vm.task = None
            self._vms.pop(vm.name, None)
            await self._end(vm)
            return
        await self._watch(
            vm,
            connection,
            lambda event_id, at_s: VmAdopted(
                event_id=event_id,
                at_s=at_s,
                vm=vm.name,
                billing_since_s=vm.ordered_s,
                booked_s=self._booked_s,
                usd_per_hour=self._usd_per_hour(vm),
            ),
        )

    # ------------------------------------------------------------------------------------------------------ launch

    async def _launch(self, vm: Vm) -> None:
        try:
            connection = await self._bring_up(vm)
        except (CloudError, LinkLost, TrustError, QueryRefusedError, OSError) as error:
            _LOG.warning("launch of %s failed: %s", vm.name, error)
            if vm.node is not None and isinstance(self._cloud, Learns):
                self._cloud.unfit(vm.node)
            self._emit(failure_of(vm.name, vm.node, error))
            return
        await self._watch(
            vm,
            connection,
            lambda event_id, at_s: VmReady(
                event_id=event_id,
                at_s=at_s,
                vm=vm.name,
                billing_since_s=vm.ordered_s,
                usd_per_hour=self._usd_per_hour(vm),
                setbacks=() if vm.node is None else vm.node.failures,
            ),
        )

    def _usd_per_hour(self, vm: Vm) -> float | None:
        return None if vm.node is None else self._size_prices.get(vm.node.size)

    async def _watch(self, vm: Vm, connection: Connection, ready: Callable[[str, float], Event]) -> None:
        """Report that a VM is ready, and when it is lost. Reconnect if the link was only interrupted."""
        vm.launched = True
        self._emit(ready)
        self._begin(self._on_vms.open_missing(vm.name, connection), f"open the rest on {vm.name}")
        while True:
            vm.listening = self._begin(self._watch_for_notice(vm, connection), f"watch for a notice of {vm.name}")
            why = await connection.lost()
            vm.listening.cancel()
            if vm.ending:
                return
            await self._detach(vm, Loss(why, self._clock.now()))
            again = await self._link_again(vm, connection.link.stats.rtt_s or 0.0)
            if again is None or vm.ending:
                break
            connection = again
        if not vm.ending:
            self._emit(lambda event_id, at_s: VmLost(event_id=event_id, at_s=at_s, vm=vm.name, reason=why))

    async def _link_again(self, vm: Vm, round_trip_s: float) -> Connection | None:
        node = vm.node
        if vm.ending or vm.given_up or node is None:
            return None
        work = linked_again(
            vm.name,
            lambda within_s: self._dial(vm, node, None, within_s),
            lambda connection: self._open_queries(vm, connection),
            lambda: self._detach(vm),
            round_trip_s=round_trip_s,
            within_s=self._orphan_after_s,
            clock=self._clock,
        )
        # A separate task: it is cancelled when the VM ends, but the waiting code here is not.
        vm.relinking = asyncio.create_task(work, name=f"link {vm.name} again")
        try:
            await asyncio.wait([vm.relinking])
        finally:
            await end_tasks(vm.relinking)
        return None if vm.relinking.cancelled() else vm.relinking.result()

    async def _watch_for_notice(self, vm: Vm, connection: Connection) -> None:
        """Report a notice that the provider reclaims a VM."""
        ends_s = await connection.reclaimed() + self._clock.now()
        if connection.alive and not vm.ending:
            self._emit(lambda event_id, at_s: VmReclaimed(event_id=event_id, at_s=at_s, vm=vm.name, ends_s=ends_s))

    async def _bring_up(self, vm: Vm) -> Connection:
        await self.reaper.first_sweep()
        await self._paid()
        token = new_token()
        host = new_host_name(vm.name)
        text = user_data(self._authority, host, token, self._orphan_after_s)
        vm.node = node = await self._cloud.create(vm.name, self.reaper.tags, text)
        self.boots.add(node.boot)
        # A warm host was enrolled when it was prepared; the token of this launch does not belong to it.
        connection = await self._dial(vm, node, token if node.host == host else None)
        await self._open_queries(vm, connection)
        return connection

    async def _dial(self, vm: Vm, node: Node, token: bytes | None, within_s: float = DIAL_S) -> Connection:
        if vm.address is None:
            vm.address = (node.address, node.port)
            if self._shape is not None:
                vm.relay = ShapedRelay(vm.address, *self._shape, self._clock)
                vm.address = await vm.relay.start()
        connection = await self._link_up(vm.name, node.host, vm.address, self._authority, token, self._clock, within_s)
        vm.connect(connection)
        return connection

    async def _open_queries(self, vm: Vm, connection: Connection) -> None:
        await connection.wait_ready(READY_DEADLINE_S)
        differences = self._home_runtime().differences(connection.link.hello.runtime)
        if differences:
            raise CloudError(
                f"{vm.name} differs from home ({'; '.join(differences)}): install the same versions on both"
            )
        await self._on_vms.open_all(vm.name, connection)

    # ------------------------------------------------------------------------------------------------------- ending

    async def _drain(self, vm: Vm) -> None:
        """Wait until nothing is open on the VM; it is in no route any more."""
        self._on_vms.drain(vm.name)
        while not self._on_vms.idle(vm.name):
            await self._clock.sleep_until(self._clock.now() + _DRAIN_POLL_S)
        if not vm.ending:
            self._emit(lambda event_id, at_s: VmDrained(event_id=event_id, at_s=at_s, vm=vm.name))

    async def _terminate(self, name: str) -> None:
        vm = self._vms.pop(name, None)
        if vm is not None:
            await self._end(vm)
        traffic = NO_TRAFFIC if vm is None else vm.traffic()
        self._emit(lambda event_id, at_s: VmGone(event_id=event_id, at_s=at_s, vm=name, traffic=traffic))

    async def _end(self, vm: Vm) -> None:
        """Release a VM in any state, and terminate it whatever else fails."""
        vm.ending = True
        # Cancel a launch before its lanes are removed, so that it adds none afterwards. After the launch its task
        # watches the link and, when the link is lost, removes the lanes: that must not be cancelled half-way.
        for task in (vm.listening, vm.draining, vm.relinking, None if vm.launched else vm.task):
            await end_tasks(task)
        try:
            await self._detach(vm)
            await vm.close_link()
        finally:
            if vm.node is not None:
                await self.reaper.destroy(vm.node)

    async def _detach(self, vm: Vm, loss: Loss | None = None) -> None:
        await self._on_vms.take_out(vm.name, loss)
        self._profiler.lane_closed(vm.name)

    def traffic(self) -> dict[str, Traffic]:
        """Return by VM the traffic since the last call."""
        return {vm.name: vm.traffic() for vm in self._vms.values()}

    def in_service(self) -> list[InService]:
        """Return the VMs' hosts, without those that are being terminated.

        Raises:
            NotSettledError: one is being launched, or reconnected.
        """
        return [vm.in_service() for vm in self._vms.values()]

    @property
    def settled(self) -> bool:
        """Whether no VM is left."""
        return not self._vms and not self._endings and self.reaper.settled

    async def terminate_all(self) -> None:
        """Terminate every VM without asking the scheduler: for a gateway that cannot continue."""
        left = [self._vms.pop(name) for name in tuple(self._vms)]
        await asyncio.gather(*(self._end(vm) for vm in left), *self._endings, return_exceptions=True)
        await self.reaper.stop()
