"""The VMs of one gateway in a fluid world: they boot, drain, are lost and terminated, between two slots."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from dataclasses import dataclass
from itertools import count

from gateway.simulate.faultcounts import FaultCounts
from gateway.simulate.options import Faults, Machines
from gateway.simulate.runs.cloud import DRAIN_POLL_S
from gateway.simulate.sizes import ANY_SIZE, VmSize, picked
from policies.signals import (
    Command,
    DrainVm,
    Event,
    StartVm,
    TerminateVm,
    VmDrained,
    VmFailed,
    VmGone,
    VmLost,
    VmReady,
    VmReclaimed,
)

_END_S = 0.1


@dataclass(slots=True)
class _Vm:
    name: str
    column: int
    ordered_s: float
    size: VmSize = ANY_SIZE
    setbacks: tuple[str, ...] = ()
    ends_s: float = math.inf
    ready: bool = False
    ending: bool = False
    draining: bool = False


class FluidVms:
    """Carries out a scheduler's commands, with delays.

    Args:
        seed: of boot times and faults.
        boot_s: expected boot time.
        columns: the most VMs.
        machines: sizes, the distribution of boot times, and how soon a dead VM is noticed.
        faults: launches that fail, sizes that are sold out, VMs that are reclaimed.

    Attributes:
        counts: what went wrong.
        sizes: how many VMs of each size were launched.
    """

    def __init__(self, seed: str, boot_s: float, columns: int, machines: Machines, faults: Faults) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # no secret
        self._boot_s = boot_s
        self._machines = machines
        self._faults = faults
        self.counts = FaultCounts()
        self.sizes: Counter[VmSize] = Counter()
        self._vms: dict[str, _Vm] = {}
        self._free = list(range(columns))
        self._coming: list[tuple[float, int, str, str]] = []
        self._numbers = count()
        self._event_ids = count(1)

    def event_id(self) -> str:
        """Return the name of the gateway's next event."""
        return f"e{next(self._event_ids)}"

    @property
    def lanes(self) -> list[tuple[int, str]]:
        """Column and name of each VM that can serve."""
        return [(vm.column, vm.name) for vm in self._vms.values() if vm.ready]

    @property
    def settled(self) -> bool:
        """Whether no VM is left."""
        return not self._vms

    def column(self, name: str) -> int:
        """Return the column of a VM."""
        return self._vms[name].column

    def obey(self, command: Command, at_s: float, *, empty: bool = False) -> None:
        """Begin a command; ``empty``: nothing is in the lanes of its VM.

        Raises:
            ValueError: it is not about a VM.
        """
        match command:
            case StartVm():
                self._start(command.vm, at_s)
            case DrainVm():
                self._vms[command.vm].draining = True
                if empty:
                    self._later(at_s + DRAIN_POLL_S, "drained", command.vm)
            case TerminateVm():
                vm = self._vms[command.vm]
                vm.ending, vm.ready = True, False
                self._later(at_s + _END_S, "gone", vm.name)
            case _:
                raise ValueError(f"no VM can do what {command} says")

    def _start(self, name: str, at_s: float) -> None:
        vm = self._vms[name] = _Vm(name, heapq.heappop(self._free), at_s)
        boot_s = self._machines.boot.draw(self._draw, self._boot_s)
        fails = self._draw.random() < self._faults.failed_launch
        size, vm.setbacks = picked(self._machines.sizes, self._faults.sold_out, self._draw)
        if fails or size is None:
            self._later(at_s + self._draw.uniform(0.1, 1.0) * boot_s, "failed", name)
            return
        vm.size = size
        self.sizes[size] += 1
        self._later(at_s + boot_s, "ready", name)

    def _later(self, at_s: float, what: str, name: str) -> None:
        heapq.heappush(self._coming, (at_s, next(self._numbers), what, name))

    def _will_be_taken(self, vm: _Vm, at_s: float) -> None:
        vm.ends_s = at_s + self._draw.expovariate(self._faults.reclaim_per_s)
        if self._faults.notice_s > 0:
            self._later(max(at_s, vm.ends_s - self._faults.notice_s), "notice", vm.name)
        self._later(vm.ends_s + self._machines.detect_s, "lost", vm.name)

    @property
    def next_s(self) -> float:
        """When the next thing happens; infinity if nothing will."""
        return self._coming[0][0] if self._coming else float("inf")

    @property
    def draining(self) -> list[str]:
        """The VMs that wait for their lanes to be empty."""
        return [vm.name for vm in self._vms.values() if vm.draining and vm.ready]

    def drained(self, name: str, at_s: float) -> Event:
        """Note that a VM's lane is empty."""
        self._vms[name].draining = False
        return VmDrained(event_id=self.event_id(), at_s=at_s, vm=name)

    def next_event(self) -> tuple[Event | None, str]:
        """Carry out the next step; return the event for the scheduler, and the VM whose lane it closes."""
        at_s, _, what, name = heapq.heappop(self._coming)
        vm = self._vms.get(name)
        if vm is None or (vm.ending and what != "gone"):
            return None, ""
        if what == "ready":
            vm.ready = True
            if self._faults.reclaim_per_s > 0:
                self._will_be_taken(vm, at_s)
            return self._ready(vm, at_s), ""
        if what == "drained":
            return (self.drained(name, at_s) if vm.draining and vm.ready else None), ""
        if what == "notice":
            self.counts.notices += 1
            return VmReclaimed(event_id=self.event_id(), at_s=at_s, vm=name, ends_s=vm.ends_s), ""
        if what == "gone":
            del self._vms[name]
            heapq.heappush(self._free, vm.column)
            return VmGone(event_id=self.event_id(), at_s=at_s, vm=name), ""
        vm.ready = False
        if what == "failed":
            self.counts.launches_failed += 1
            return VmFailed(event_id=self.event_id(), at_s=at_s, vm=name, reason="no capacity"), ""
        self.counts.reclaimed += 1
        return VmLost(event_id=self.event_id(), at_s=at_s, vm=name, reason="reclaimed by the cloud"), name

    def _ready(self, vm: _Vm, at_s: float) -> VmReady:
        return VmReady(
            event_id=self.event_id(),
            at_s=at_s,
            vm=vm.name,
            billing_since_s=vm.ordered_s,
            usd_per_hour=vm.size.usd_per_hour,
            setbacks=vm.setbacks,
        )
