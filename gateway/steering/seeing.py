"""What the API shows of a running gateway."""

from __future__ import annotations

import json
from importlib.metadata import version

from gateway.query.supervision.supervisor import Supervisor
from gateway.steering.parts import GatewayParts
from gateway.views.http.answers import costs_answer, decision_answer, lane_answers, query_answer, utc, vm_answers
from gateway.views.http.models import CostsAnswer, DecisionsAnswer, LaneAnswer, QueryAnswer, StatusAnswer, VmAnswer
from gateway.views.http.operations import RefusedNowError
from gateway.views.http.orders import DecisionsAsked
from gateway.views.http.probes.metrics import MeasuredGateway
from gateway.views.moneyview import money
from gateway.views.statusview import status_text
from gateway.views.why.decisions import decisions_before
from infra.threads import run_to_end


class Seeing:
    """Answers from the parts of a gateway.

    Args:
        parts: of the gateway.
    """

    def __init__(self, parts: GatewayParts) -> None:
        self._parts = parts

    @property
    def phase(self) -> str:
        """Return the phase of the gateway."""
        return self._parts.phase()

    @property
    def trouble(self) -> str:
        """Return why it does not take or deliver events now although it runs; empty if nothing is wrong."""
        return "; ".join(f"{who}: {why}" for who, why in self.troubles().items())

    def troubles(self) -> dict[str, str]:
        """Return why it does not take or deliver events, by what is concerned; empty if nothing is wrong."""
        found = {f"query {name}": why for name, why in self._parts.supervision.troubles.items()}
        return {who: why for who, why in {"home": self._parts.home.trouble, **found}.items() if why}

    def trouble_of(self, query: str) -> str:
        """Return why one query does not take or deliver events now; empty if nothing is wrong."""
        return self._parts.supervision.of[query].trouble or self._parts.home.trouble

    def why(self) -> str:
        """Return the last decision about each query as JSON."""
        return json.dumps(self._parts.deciding.decisions.last)

    def status(self) -> str:
        """Return the state of the gateway as JSON."""
        at_s = self._parts.clock.now()
        spent = money(self._parts.scheduler, at_s, self._parts.clock.wall())
        boot = self._parts.scheduler.boot(at_s)
        latencies = {name: slot.latency_s for name, slot in self._parts.composer.slots.items()}
        return status_text(
            self.phase, self._parts.scheduler.vms, self._parts.open, latencies, spent, boot, self._parts.memory
        )

    def overview(self) -> StatusAnswer:
        """Return the gateway as a whole."""
        until_s, trouble = self._parts.scheduler.paused_until_s, self.trouble
        boot = self._parts.scheduler.boot(self._parts.clock.now())
        return StatusAnswer(
            phase=self.phase,
            ready=self.phase == "running" and not trouble,
            trouble=trouble,
            version=version("spillway"),
            state_dir=str(self._parts.config.gateway.state_dir),
            at=utc(self._parts.clock.wall()),
            slot_s=self._parts.config.gateway.slot_s,
            paused=until_s is not None,
            paused_until=None if until_s is None else utc(until_s + self._parts.ahead_s),
            max_vms=self._parts.config.cloud.max_vms,
            boot_configured_s=boot.configured_s,
            boot_expected_s=boot.expected_s,
            boots_seen=boot.boots,
            config=str(self._parts.config.file or ""),
            config_refused=self._parts.reloader.refused,
            queries={name: each.state for name, each in self._parts.supervision.of.items()},
            vms={name: str(state) for name, state in self._parts.scheduler.vms.items()},
            memory_held_bytes=self._parts.memory.held_bytes,
            memory_limit_bytes=self._parts.memory.limit_bytes,
        )

    def costs(self) -> CostsAnswer:
        """Return the money."""
        return costs_answer(self._parts.scheduler, self._parts.clock.now(), self._parts.clock.wall())

    def queries(self) -> list[QueryAnswer]:
        """Return all queries; none before the gateway runs."""
        return [self._query(name, supervisor) for name, supervisor in self._parts.open.items()]

    def query(self, name: str) -> QueryAnswer:
        """Return one query.

        Raises:
            UnknownNameError: it does not exist.
            RefusedNowError: the gateway has not opened it yet.
        """
        self._parts.check_known(name)
        if name not in self._parts.open:
            raise RefusedNowError(f"the gateway is {self.phase}: retry when it is running")
        return self._query(name, self._parts.open[name])

    def _query(self, name: str, supervisor: Supervisor) -> QueryAnswer:
        slot = self._parts.composer.slots.get(name)
        return query_answer(
            self._parts.config.queries[name],
            supervisor,
            pin=self._parts.scheduler.pins.get(name),
            why_home=self._parts.scheduler.queries[name].why_home,
            latency_s=0.0 if slot is None else slot.latency_s,
            ahead_s=self._parts.ahead_s,
        )

    def lanes(self) -> list[LaneAnswer]:
        """Return all lanes of all queries."""
        return [
            lane
            for name, supervisor in self._parts.open.items()
            for lane in lane_answers(
                supervisor, dict(self._parts.scheduler.routes[name]), self._parts.composer.slots.get(name)
            )
        ]

    def vms(self) -> list[VmAnswer]:
        """Return the VMs that live."""
        return vm_answers(self._parts.scheduler, self._parts.clock.now(), self._parts.ahead_s)

    def measured(self) -> MeasuredGateway:
        """Return the figures for metrics."""
        tallies = {name: supervisor.query.tally for name, supervisor in self._parts.open.items()}
        return MeasuredGateway(
            status=self.overview(),
            queries=self.queries(),
            lanes=self.lanes(),
            vms=self.vms(),
            costs=self.costs(),
            latencies={name: (tally.latency, tally.delivery) for name, tally in tallies.items()},
            vm_events=self._parts.composer.vm_events,
            traces=self._parts.traces,
        )

    async def decisions(self, asked: DecisionsAsked) -> DecisionsAnswer:
        """Return decisions, the newest first.

        Raises:
            UnknownNameError: the query does not exist.
            OSError: the ledger cannot be read.
        """
        if asked.query is not None:
            self._parts.check_known(asked.query)
        before_s = float("inf") if asked.before is None else asked.before
        folder = self._parts.config.gateway.state_dir / "decisions"
        lines = await run_to_end(lambda: decisions_before(folder, asked.query, before_s, asked.limit))
        return DecisionsAnswer(decisions=[decision_answer(line) for line in lines])
