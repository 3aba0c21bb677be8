"""Which queries' events go to VMs, and which share of them: equation 2, the ranking and the share controllers."""

from __future__ import annotations

from collections.abc import Mapping

from policies.signals import HOME, Cause, Command, Event, QueryKeptOff, SetRoute
from policies.steering import QueryPinned
from policies.switching.pinning import Pin
from policies.switching.query import ALL_HOME, Route, SwitchedQuery
from policies.switching.ranking import Candidate, Ranking
from policies.switching.sharing import split
from policies.vms.fleet import Fleet
from policies.vms.vm import VmState


class Routes:
    """Keeps each query's route.

    Args:
        queries: all queries.
        fleet: the VMs; VMs in a route are marked as sending.
        ranking: which query goes to the cloud next.
    """

    def __init__(self, queries: Mapping[str, SwitchedQuery], fleet: Fleet, ranking: Ranking) -> None:
        self._queries = queries
        self._fleet = fleet
        self._ranking = ranking

    def rank(self, event: Event, *, vm_before: bool) -> Mapping[str, str]:
        """Switch at most one more query to the cloud; return the reason for each that wants this and is not switched.

        Args:
            event: the slot that ended.
            vm_before: phi_VM of the slot before.
        """
        ready = self._fleet.ready
        candidates = [
            Candidate(
                name,
                query.slot.latency_s,
                query.settings.latency_qos_s,
                query.settings.switching.tolerance_s,
                query.wants_cloud(
                    vm_before=vm_before,
                    vm_ready=bool(query.usable(ready)),
                    switched=self._ranking.is_switched(name),
                ),
            )
            for name, query in self._queries.items()
        ]
        return self._ranking.update(candidates, event.at_s)

    def share_out(self, event: Event) -> list[Command]:
        """Set each query's route after a slot."""
        commands: list[Command] = []
        for name, query in self._queries.items():
            # Most queries are at home and stay there.
            if self._ranking.is_switched(name) or query.route != ALL_HOME or query.pin is not None:
                commands += self._reroute(query, event)
        self.mark_sending(event)
        return commands

    def leave_unready(self, event: Event, why: str) -> list[Command]:
        """Remove lanes that are not ready from all routes."""
        usable = {HOME, *self._fleet.ready}
        commands: list[Command] = []
        for query in self._queries.values():
            if not usable.issuperset(lane for lane, _ in query.route):
                commands += self._reroute(query, event, why)
        self.mark_sending(event)
        return commands

    def keep_off(self, query: SwitchedQuery, event: QueryKeptOff) -> list[Command]:
        """Send none of a query's events to a VM that cannot run it."""
        query.kept_off[event.vm] = event.reason
        commands = self._reroute(query, event, f"{event.vm} cannot run it: {event.reason}")
        self.mark_sending(event)
        return commands

    def pin(self, query: SwitchedQuery, event: QueryPinned) -> list[Command]:
        """Pin a query, or end its pin; its route changes now."""
        query.pin = None if event.share is None else Pin(event.share, event.until_s)
        commands = self._reroute(query, event, "its pin ended" if query.pin is None else query.pin.why)
        self.mark_sending(event)
        return commands

    def hold(self, event: Event) -> list[Command]:
        """Leave all routes as they are, except for pins, lanes that are not ready, and queries that must go home."""
        commands: list[Command] = []
        for query in self._queries.values():
            if query.why_home:
                commands += self._set_route(query, ALL_HOME, event, query.why_home)
            elif query.pin is not None:
                commands += self._reroute(query, event)
        return [*commands, *self.leave_unready(event, "a VM of its route is no longer ready")]

    def _reroute(self, query: SwitchedQuery, event: Event, why: str = "") -> list[Command]:
        """Set a query's present route, because of ``why``; because of its latency if ``why`` is empty."""
        route = ALL_HOME
        if query.pin is not None:
            ready = query.usable(self._fleet.ready)
            route = split(query.pinned_share, ready, query.slot.rates)
            why = why or query.pin.why
        elif self._ranking.is_switched(query.settings.name) and (ready := query.usable(self._fleet.ready)):
            share = query.controller.update(query.slot, ready, query.share)
            route = split(share, ready, query.slot.rates)
        return self._set_route(query, route, event, why)

    def _set_route(self, query: SwitchedQuery, route: Route, event: Event, why: str) -> list[Command]:
        if route == query.route:
            return []
        query.route = route
        latency_s, send_above_s = query.slot.latency_s, query.settings.switching.send_above_s
        relation = ">=" if latency_s >= send_above_s else "<"
        why = why or f"L {latency_s:.2f} s {relation} send_above {send_above_s:g} s"
        return [SetRoute(query=query.settings.name, shares=route, cause=Cause(event.event_id, why))]

    def mark_sending(self, event: Event) -> None:
        """Mark the VMs that are in a route as sending, and the others as idle."""
        self._fleet.mark_sending({lane for query in self._queries.values() for lane, _ in query.route}, event)

    def validate(self) -> None:
        """Check all invariants of the routes.

        Raises:
            AssertionError: one is broken.
        """
        usable = {HOME, *self._fleet.ready}
        for name, query in self._queries.items():
            shares = [share for _, share in query.route]
            assert abs(sum(shares) - 1) < 1e-9, f"the shares of {name} do not sum to 1: {query.route}"
            assert all(0 <= share <= 1 for share in shares), f"a share of {name} is not in [0, 1]: {query.route}"
            assert usable.issuperset(lane for lane, _ in query.route), f"{name} goes to a VM not ready: {query.route}"
        routed = {lane for query in self._queries.values() for lane, _ in query.route} - {HOME}
        sending = {machine.name for machine in self._fleet.live.values() if machine.state is VmState.SENDING}
        assert routed == sending, f"routed to {routed}, marked as sending {sending}"
