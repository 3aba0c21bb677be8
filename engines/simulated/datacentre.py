"""Clouds in the model of CloudSim, on which CEPSim is based: data centres of hosts, hosts of VMs, all in MIPS.

A host never promises more MIPS than it has, so a VM executes its promised MIPS as long as it lives and does not fail.
Prices are the business of ``gateway.simulate.graphs``; spot reclaims belong to worlds, which drive the production
scheduler.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations
from typing import Protocol

from engines.simulated.boot import BootTimes, LogNormal
from engines.simulated.placement import Link, SimulatedVm

_ROUNDING = 1e-9


class NoRoomError(ValueError):
    """No host of a data centre has enough free MIPS for a VM."""


@dataclass(frozen=True, slots=True)
class SimulatedHost:
    """A machine with ``cores``, each of which executes ``mips`` million instructions a second for its VMs."""

    name: str
    mips: float
    cores: int = 1

    def __post_init__(self) -> None:
        if not (self.mips > 0 and math.isfinite(self.mips)):
            raise ValueError(f"{self.name}: MIPS must be finite and positive, not {self.mips!r}")
        if self.cores < 1:
            raise ValueError(f"{self.name}: a host needs at least one core, not {self.cores}")


@dataclass(frozen=True, slots=True)
class Datacentre:
    """Hosts at one place; ``inside`` is the network between two of them."""

    name: str
    hosts: tuple[SimulatedHost, ...]
    inside: Link = field(default_factory=Link)


class AllocationStrategy(Protocol):
    """Decides the host of a new VM (CloudSim's VmAllocationPolicy)."""

    def host(self, mips: float, free_mips: Mapping[str, float]) -> str | None:
        """Return one of the hosts of a data centre, or None if no host has room."""
        ...


class MostFree:
    """The host with the most free MIPS, the first of equals: CloudSim's simple policy."""

    def host(self, mips: float, free_mips: Mapping[str, float]) -> str | None:
        """See ``AllocationStrategy``."""
        chosen = max(free_mips, key=lambda name: free_mips[name], default=None)
        return chosen if chosen is not None and free_mips[chosen] >= mips * (1 - _ROUNDING) else None


class SimulatedCloud:
    """Data centres, and the VMs that were started in them.

    Args:
        datacentres: the names of their hosts differ from each other.
        between: the network from one data centre to another.
        allocation: decides the host of a new VM.
        boot: the distribution of boot times around ``boot_s``.
        boot_s: expected time from the order of a VM until it executes anything.
        seed: of boot times.

    Raises:
        ValueError: two names are equal.
    """

    def __init__(
        self,
        datacentres: Sequence[Datacentre],
        *,
        between: Link | None = None,
        allocation: AllocationStrategy | None = None,
        boot: BootTimes | None = None,
        boot_s: float = 0.0,
        seed: int = 0,
    ) -> None:
        self._centres = {centre.name: centre for centre in datacentres}
        self._free = {
            centre.name: {host.name: host.mips * host.cores for host in centre.hosts} for centre in datacentres
        }
        hosts = [host.name for centre in datacentres for host in centre.hosts]
        self._core_mips = {host.name: host.mips for centre in datacentres for host in centre.hosts}
        if len(self._centres) < len(datacentres) or len(set(hosts)) < len(hosts):
            raise ValueError("two data centres or two hosts have the same name: rename one")
        self._between = between or Link()
        self._allocation = allocation or MostFree()
        self._boot, self._boot_s = boot or LogNormal(), boot_s
        self._random = random.Random(f"boot {seed}")  # noqa: S311  # no secret
        self._vms: dict[str, SimulatedVm] = {}
        self._at: dict[str, tuple[str, str]] = {}

    @property
    def vms(self) -> tuple[SimulatedVm, ...]:
        """Return all VMs that were ever started, in this order, for ``Simulation``."""
        return tuple(self._vms.values())

    def host(self, vm: str) -> str:
        """Return the host on which a VM was started."""
        return self._at[vm][1]

    def start(
        self, name: str, mips: float, datacentre: str, at_s: float = 0.0, *, cores: int = 1, host: str | None = None
    ) -> SimulatedVm:
        """Order a VM and return it; it executes once it has booted.

        Args:
            name: of the VM.
            mips: of each of its cores.
            datacentre: where it is.
            at_s: when it is ordered.
            cores: how many it has; together they execute the VM's vertices.
            host: where it must be; the allocation strategy chooses if not given.

        Raises:
            NoRoomError: no host has enough free MIPS, or cores that are fast enough.
            ValueError: the name is taken, or there is no such data centre or host.
        """
        if name in self._vms or datacentre not in self._centres:
            raise ValueError(f"VM {name} already exists, or data centre {datacentre} does not")
        free = self._free[datacentre]
        if host is not None and host not in free:
            raise ValueError(f"{datacentre} has no host {host}; its hosts are {', '.join(free)}")
        fast = {one: left for one, left in free.items() if mips <= self._core_mips[one] * (1 + _ROUNDING)}
        possible = fast if host is None else {one: left for one, left in fast.items() if one == host}
        chosen = self._allocation.host(mips * cores, possible)
        if chosen is None:
            raise NoRoomError(_no_room(datacentre, name, mips, cores, free, fast))
        vm = SimulatedVm(name, mips * cores, ready_s=at_s + self._boot.draw(self._random, self._boot_s))
        free[chosen] -= vm.mips
        self._vms[name], self._at[name] = vm, (datacentre, chosen)
        return vm

    def fail(self, name: str, down_s: Sequence[tuple[float, float]]) -> SimulatedVm:
        """Let a VM fail and come back; times that overlap count once.

        Args:
            name: of the VM.
            down_s: when it fails, and when it is back; besides those that were given before.
        """
        vm = self._vms[name]
        self._vms[name] = failing = replace(vm, down_s=_apart([*vm.down_s, *down_s]))
        return failing

    def end(self, name: str, at_s: float) -> SimulatedVm:
        """Terminate a VM, or let it fail: it executes nothing from then on, and its MIPS are free for others.

        Raises:
            ValueError: it has ended already.
        """
        vm = self._vms[name]
        if vm.ends_s < math.inf:
            raise ValueError(f"{name} ended at {vm.ends_s:g} s already")
        self._vms[name] = ended = replace(vm, ends_s=at_s)
        datacentre, host = self._at[name]
        self._free[datacentre][host] += vm.mips
        return ended

    @property
    def links(self) -> Mapping[tuple[str, str], Link]:
        """Return the network between each two VMs, for ``Simulation``; two VMs on one host need none."""
        return {pair: self._link(*pair) for pair in permutations(self._vms, 2)}

    def _link(self, origin: str, target: str) -> Link:
        (from_centre, from_host), (to_centre, to_host) = self._at[origin], self._at[target]
        if from_host == to_host:
            return Link()
        return self._centres[from_centre].inside if from_centre == to_centre else self._between


def _no_room(
    centre: str, vm: str, mips: float, cores: int, free: Mapping[str, float], fast: Mapping[str, float]
) -> str:
    if not fast:
        return f"no host of {centre} has cores of {mips:g} MIPS, as {vm} needs them"
    return f"no host of {centre} has {mips * cores:g} MIPS free for {vm}: {dict(free)}"


def _apart(down_s: Sequence[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Return times in order, those that overlap as one."""
    apart: list[tuple[float, float]] = []
    for from_s, to_s in sorted(down_s):
        if apart and from_s <= apart[-1][1]:
            apart[-1] = (apart[-1][0], max(to_s, apart[-1][1]))
        else:
            apart.append((from_s, to_s))
    return tuple(apart)
