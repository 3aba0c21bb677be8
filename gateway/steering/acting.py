"""What the API can order.

An action that concerns VMs or shares is an event of the scheduler, so that the log of events contains it.
"""

from __future__ import annotations

from gateway.hosts.rotation import RotationRefusedError
from gateway.reloading.reloader import ReloadRefusedError
from gateway.steering.parts import GatewayParts
from gateway.views.http.models import DoneAnswer
from gateway.views.http.operations import RefusedNowError, UnknownNameError
from gateway.views.http.orders import PinOrder
from policies.steering import DecisionsPaused, DecisionsResumed, QueryPinned, VmStopOrdered
from policies.vms.vm import WANTED_STATES, VmState


class Acting:
    """Actions on the parts of a gateway.

    Args:
        parts: of the gateway.
    """

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts

    def pin(self, query: str, order: PinOrder) -> DoneAnswer:
        """Pin a query.

        Raises:
            UnknownNameError: it does not exist.
            RefusedNowError: it may not go there.
        """
        self._parts.check_known(query)
        self._parts.check_runs()
        share, switched = order.cloud_share, self._parts.scheduler.queries[query]
        if share and switched.why_never:
            raise RefusedNowError(f"query {query} stays home: {switched.why_never}")
        if share and not self._parts.config.cloud.max_vms:
            raise RefusedNowError("the config has no cloud, or its max_vms is 0")
        if 0 < share < 1 and switched.whole:
            raise RefusedNowError(f"query {query} moves as a whole: pin it to home or to cloud")
        self._parts.deciding.handle(
            lambda event_id, at_s: QueryPinned(
                event_id=event_id, at_s=at_s, query=query, share=share, until_s=at_s + order.for_s
            )
        )
        where = {0.0: "home", 1.0: "to the cloud"}.get(share, f"{share:.1%} to the cloud")
        return DoneAnswer(done=f"query {query} is pinned {where} for {order.for_s:g} s")

    def unpin(self, query: str) -> DoneAnswer:
        """End a pin.

        Raises:
            UnknownNameError: the query does not exist.
            RefusedNowError: it is not pinned.
        """
        self._parts.check_known(query)
        if query not in self._parts.scheduler.pins:
            raise RefusedNowError(f"query {query} is not pinned")
        self._parts.deciding.handle(
            lambda event_id, at_s: QueryPinned(event_id=event_id, at_s=at_s, query=query, share=None)
        )
        return DoneAnswer(done=f"query {query} is no longer pinned")

    def pause(self, for_s: float) -> DoneAnswer:
        """Pause all decisions.

        Raises:
            RefusedNowError: the gateway does not run.
        """
        self._parts.check_runs()
        self._parts.deciding.handle(
            lambda event_id, at_s: DecisionsPaused(event_id=event_id, at_s=at_s, until_s=at_s + for_s),
        )
        return DoneAnswer(done=f"decisions are paused for {for_s:g} s: VMs and shares stay as they are")

    def resume(self) -> DoneAnswer:
        """Resume decisions.

        Raises:
            RefusedNowError: they are not paused.
        """
        if self._parts.scheduler.paused_until_s is None:
            raise RefusedNowError("decisions are not paused")
        self._parts.deciding.handle(lambda event_id, at_s: DecisionsResumed(event_id=event_id, at_s=at_s))
        return DoneAnswer(done="decisions are resumed")

    def stop_vm(self, vm: str, *, at_once: bool) -> DoneAnswer:
        """Drain a VM, or terminate it at once.

        Raises:
            UnknownNameError: there is no such VM.
            RefusedNowError: it ends already.
        """
        state = self._parts.scheduler.vms.get(vm)
        if state is None:
            raise UnknownNameError(f"there is no VM {vm}; the VMs are {', '.join(self._parts.scheduler.vms) or 'none'}")
        if state not in WANTED_STATES and not (at_once and state is VmState.DRAINING):
            raise RefusedNowError(f"{vm} is {state} already")
        self._parts.deciding.handle(
            lambda event_id, at_s: VmStopOrdered(event_id=event_id, at_s=at_s, vm=vm, at_once=at_once)
        )
        return DoneAnswer(done=f"{vm} is {self._parts.scheduler.vms.get(vm, VmState.GONE)}")

    def drain(self) -> DoneAnswer:
        """Drain the gateway and end it, as SIGTERM does.

        Raises:
            RefusedNowError: that has begun already.
        """
        if not self._parts.drain():
            raise RefusedNowError("the gateway drains already")
        return DoneAnswer(done="the gateway delivers what it has read, terminates its VMs, and exits")

    def restart(self, query: str) -> DoneAnswer:
        """Open a query that has failed again, now.

        Raises:
            UnknownNameError: it does not exist.
            RefusedNowError: it has not failed, or the gateway does not run.
        """
        self._parts.check_known(query)
        self._parts.check_runs()
        supervisor = self._parts.supervision.of[query]
        if not supervisor.restart():
            raise RefusedNowError(f"query {query} is {supervisor.state}: only one that has failed can be restarted")
        return DoneAnswer(done=f"query {query} is being opened again")

    async def reload(self) -> DoneAnswer:
        """Read the config file again, and take all of it in.

        Raises:
            RefusedNowError: it has mistakes, or changes what cannot change now; nothing has changed.
        """
        try:
            return DoneAnswer(done=await self._parts.reloader.reload())
        except ReloadRefusedError as error:
            raise RefusedNowError(str(error)) from error

    async def rotate_certificates(self) -> dict[str, list[str]]:
        """Renew all keys and certificates; see ``gateway.hosts.rotation``.

        Raises:
            RotationRefusedError: not now.
        """
        if self._parts.phase() != "running":
            raise RotationRefusedError(f"the gateway is {self._parts.phase()}: retry when it is running")
        return await self._parts.rotation.rotate()
