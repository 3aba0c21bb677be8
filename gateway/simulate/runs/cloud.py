"""The cloud of a simulated world, with its own books, and an actuator that uses it as the daemon's does."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.options import WorldOptions
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import SimulatedEngineHost
from gateway.simulate.runs.promises import promise
from gateway.simulate.sizes import ANY_SIZE, VmSize, picked
from policies.money.billing import BillingTerms
from policies.signals import Event, VmDrained, VmFailed, VmGone, VmLost, VmReady, VmReclaimed
from policies.vms.machine import VmLease

DRAIN_POLL_S = 0.25
_REFUSED_MOST = 3
_RETRY_S = 2.0
Tell = Callable[[Callable[[str, float], Event]], None]


@dataclass(slots=True)
class _Bill:
    terms: BillingTerms
    since_s: float
    until_s: float | None = None


class CloudBooks:
    """The cloud's own records: which VMs exist, and their cost."""

    def __init__(self, terms: BillingTerms) -> None:
        self._terms = terms
        self._bills: dict[str, _Bill] = {}

    def created(self, name: str, at_s: float, usd_per_hour: float | None = None) -> None:
        """Note that a VM exists from now on, at this price; None: that of the terms."""
        promise(name not in self._bills, f"a second VM {name} was created")
        self._bills[name] = _Bill(self._terms.at_price(usd_per_hour), at_s)

    def ended(self, name: str, at_s: float) -> None:
        """Note that a VM is gone; repeated calls change nothing."""
        bill = self._bills.get(name)
        if bill is not None and bill.until_s is None:
            bill.until_s = at_s

    def entered_a_period(self, name: str, from_s: float, to_s: float) -> bool:
        """Return whether another billing period of an existing VM began in this time."""
        bill = self._bills.get(name)
        if bill is None or bill.until_s is not None:
            return False
        return self._terms.billed_s(bill.since_s, from_s) < self._terms.billed_s(bill.since_s, to_s)

    @property
    def machines(self) -> set[str]:
        """The machines that exist."""
        return {name for name, bill in self._bills.items() if bill.until_s is None}

    def time_usd(self, at_s: float) -> float:
        """The cost of all VMs so far, without traffic."""
        return sum(
            bill.terms.time_usd(bill.terms.billed_s(bill.since_s, at_s if bill.until_s is None else bill.until_s))
            for bill in self._bills.values()
        )


@dataclass(slots=True)
class _Vm:
    name: str
    ordered_s: float
    size: VmSize = ANY_SIZE
    setbacks: tuple[str, ...] = ()
    host: SimulatedEngineHost | None = None
    launched: bool = False
    lost: bool = False
    ending: bool = False


class SimulatedFleet:
    """Carries out the scheduler's commands, and reports the outcome to it.

    Args:
        options: the world's.
        agenda: time.
        trace: the history.
        tell: passes an event to the scheduler.
        attach: opens all queries on a host.
        detach: removes a lane from all queries; called with its name, and why it was lost if it was.
        idle: whether nothing is open in a lane.
        make_host: creates a host with this name.
        counts: of the faults.

    Attributes:
        books: the cloud's own records.
        hosts: those on VMs, by name.
        sizes: how many VMs of each size were launched.
    """

    def __init__(
        self,
        options: WorldOptions,
        agenda: Agenda,
        trace: Trace,
        *,
        tell: Tell,
        attach: Callable[[SimulatedEngineHost], None],
        detach: Callable[[str, str], None],
        idle: Callable[[str], bool],
        make_host: Callable[[str], SimulatedEngineHost],
        counts: FaultCounts,
    ) -> None:
        self.books = CloudBooks(options.scheduler.billing)
        self.hosts: dict[str, SimulatedEngineHost] = {}
        self.sizes: Counter[VmSize] = Counter()
        self._options = options
        self._agenda = agenda
        self._trace = trace
        self._tell = tell
        self._attach = attach
        self._detach = detach
        self._idle = idle
        self._make_host = make_host
        self._counts = counts
        self._draw = random.Random(f"cloud {options.seed}")  # noqa: S311  # no secret
        self._vms: dict[str, _Vm] = {}
        self._endings = 0
        self._refused: set[str] = set()

    # --------------------------------------------------------------------------------------------------------- launch

    def launch(self, name: str) -> None:
        """Begin ``StartVm``."""
        vm = self._vms[name] = _Vm(name, self._agenda.now_s)
        faults, draw, boot_s = self._options.faults, self._draw, self._boot_s()
        fails = draw.random() < faults.failed_launch
        size, vm.setbacks = picked(self._options.machines.sizes, faults.sold_out, draw)
        if fails or size is None:
            self._agenda.after(draw.uniform(0.1, 1.0) * boot_s, lambda: self._failed(vm))
            return
        vm.size = size
        self.sizes[size] += 1
        self.books.created(name, self._agenda.now_s, size.usd_per_hour)
        if draw.random() < faults.stuck_boot:
            self._trace.note(f"fault: {name} will never be ready")
            self._counts.launches_hung += 1
        else:
            self._agenda.after(boot_s, lambda: self._ready(vm))

    def _boot_s(self) -> float:
        return self._options.machines.boot.draw(self._draw, self._options.scheduler.boot_s)

    def _failed(self, vm: _Vm) -> None:
        if not vm.ending:
            self._trace.note(f"fault: {vm.name} cannot be launched")
            self._counts.launches_failed += 1
            self._tell(lambda event_id, at_s: VmFailed(event_id=event_id, at_s=at_s, vm=vm.name, reason="no capacity"))

    def _ready(self, vm: _Vm) -> None:
        if vm.ending:
            return
        vm.host = self.hosts[vm.name] = self._make_host(vm.name)
        vm.launched = True
        self._attach(vm.host)
        self._tell(
            lambda event_id, at_s: VmReady(
                event_id=event_id,
                at_s=at_s,
                vm=vm.name,
                billing_since_s=vm.ordered_s,
                usd_per_hour=vm.size.usd_per_hour,
                setbacks=vm.setbacks,
            )
        )
        faults = self._options.faults
        if faults.reclaim_per_s > 0:
            life_s = self._draw.expovariate(faults.reclaim_per_s)
            ends_s = self._agenda.now_s + life_s
            if faults.notice_s > 0:
                self._agenda.after(max(0.0, life_s - faults.notice_s), lambda: self._give_notice(vm, ends_s))
            self._agenda.after(life_s, lambda: self._reclaim(vm))

    # ----------------------------------------------------------------------------------------------------------- loss

    def _give_notice(self, vm: _Vm, ends_s: float) -> None:
        if not vm.ending and not vm.lost:
            self._trace.note(f"the cloud gives notice that it will reclaim {vm.name}")
            self._counts.notices += 1
            self._tell(lambda event_id, at_s: VmReclaimed(event_id=event_id, at_s=at_s, vm=vm.name, ends_s=ends_s))

    def _reclaim(self, vm: _Vm) -> None:
        if vm.host is not None and vm.name in self.books.machines and not vm.ending:
            self._trace.note(f"fault: the cloud reclaims {vm.name}")
            self._counts.reclaimed += 1
            vm.host.alive = False
            self.books.ended(vm.name, self._agenda.now_s)
            self._agenda.after(self._options.machines.detect_s, lambda: self.lose(vm.name, "reclaimed"))

    def lose(self, name: str, reason: str) -> None:
        """Note that a VM no longer answers, or is abandoned."""
        vm = self._vms.get(name)
        if vm is None or vm.ending or vm.lost or not vm.launched:
            return
        vm.lost = True
        self._detach(name, reason)
        self._tell(lambda event_id, at_s: VmLost(event_id=event_id, at_s=at_s, vm=name, reason=reason))

    # --------------------------------------------------------------------------------------------------------- ending

    def drain(self, name: str) -> None:
        """Begin ``DrainVm``."""
        vm = self._vms[name]
        self._agenda.after(DRAIN_POLL_S, lambda: self._see_drained(vm))

    def _see_drained(self, vm: _Vm) -> None:
        if vm.ending or vm.lost:
            return
        if self._idle(vm.name):
            self._tell(lambda event_id, at_s: VmDrained(event_id=event_id, at_s=at_s, vm=vm.name))
        else:
            self._agenda.after(DRAIN_POLL_S, lambda: self._see_drained(vm))

    def terminate(self, name: str) -> None:
        """Begin ``TerminateVm``."""
        vm = self._vms.pop(name)
        vm.ending = True
        self._endings += 1
        self._detach(name, "")
        self.hosts.pop(name, None)
        if vm.host is not None:
            vm.host.alive = False
        asked_s = self._agenda.now_s
        self._agenda.after(self._draw.uniform(0.01, 0.2), lambda: self._give_back(name, asked_s, tries=1))

    def _give_back(self, name: str, asked_s: float, tries: int) -> None:
        if tries <= _REFUSED_MOST and self._draw.random() < self._options.faults.refused_end:
            self._trace.note(f"fault: {name} is not terminated (try {tries})")
            self._refused.add(name)
            self._agenda.after(_RETRY_S * tries, lambda: self._give_back(name, asked_s, tries + 1))
            return
        if self.books.entered_a_period(name, asked_s, self._agenda.now_s):
            self._refused.add(name)
        self.books.ended(name, self._agenda.now_s)
        self._endings -= 1
        self._tell(lambda event_id, at_s: VmGone(event_id=event_id, at_s=at_s, vm=name))

    def jumped(self, leases: Iterable[VmLease], from_s: float, to_s: float) -> None:
        """Note that the clock has stepped: a period of a VM may have begun before it was decided whether to keep it."""
        ends = (lease.vm for lease in leases if lease.block_end_s < to_s)
        self._refused |= {name for name in ends if self.books.entered_a_period(name, from_s, to_s)}

    @property
    def unforeseen_usd(self) -> float:
        """Possible spending beyond the budget: a period of each VM that the cloud did not terminate in time."""
        terms = self._options.scheduler.billing
        return len(self._refused) * terms.time_usd(terms.period_s)

    @property
    def settled(self) -> bool:
        """Whether no VM is left, at the gateway or in the cloud."""
        return not self._vms and not self._endings and not self.books.machines
