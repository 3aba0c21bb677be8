"""Combines slots into the longer windows that planning works with, and evaluates the plain rules for each window."""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace

from policies.advice import ENGINES_HOME, Advice, Seen, Site, VmPolicy
from policies.planning.enginetimes import EngineTimes
from policies.planning.rules import Observation, plain_verdicts

_JITTER = 0.1
"""Slots do not end exactly on time: a window is over when at most this part of a slot is missing."""

_CPU_WINDOWS = 8


@dataclass(frozen=True, slots=True)
class Window:
    """The measurements of a window.

    Attributes:
        wall_s: its end, in seconds since 1970.
        input_rate: mean events per second that became due.
        event_s: how long a VM is busy with an event; None before anything was measured.
        rates: input rate of each of its slots.
    """

    wall_s: float
    input_rate: float
    event_s: float | None
    rates: tuple[float, ...]


class WindowedPolicy(VmPolicy):
    """A policy that decides once per window; meanwhile its last answer holds.

    Args:
        site: the settings that all queries share.
        window_s: length of a window; slots are never split.
        latency_s: the promised latency.
    """

    def __init__(self, site: Site, window_s: float, latency_s: float) -> None:
        self.site = site
        self.window_s = max(window_s, site.slot_s)
        self.latency_s = latency_s
        self.times = EngineTimes(latency_s)
        self.cpu: deque[float] = deque(maxlen=_CPU_WINDOWS)
        self._rates: list[float] = []
        self._slot_cpu: list[float] = []
        self._began_s: float | None = None
        self._advice = Advice(why=f"{self.name}: the first window of {self.window_s:g} s is not over")

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        self.times.observe(seen.slot)
        self._rates.append(seen.slot.input_rate)
        self._slot_cpu.append(busy_part(seen, self.site.slot_s) if seen.cpu is None else seen.cpu)
        if self._began_s is None:
            self._began_s = seen.at_s - self.site.slot_s
        if seen.at_s - self._began_s < self.window_s - _JITTER * self.site.slot_s:
            return self._advice
        window = Window(seen.wall_s, sum(self._rates) / len(self._rates), self.times.vm_event_s, tuple(self._rates))
        self.cpu.append(min(1.0, sum(self._slot_cpu) / len(self._slot_cpu)))
        self._began_s, self._rates, self._slot_cpu = seen.at_s, [], []
        self._advice = replace(self.decide(window, seen), rules=self._rules(window, seen))
        return self._advice

    @abstractmethod
    def decide(self, window: Window, seen: Seen) -> Advice:
        """Return what is wanted after a window."""

    def observation(self, window: Window, seen: Seen) -> Observation | None:
        """Return the input of the plain rules; None before any event was processed."""
        if window.event_s is None:
            return None
        return Observation(
            at_s=seen.at_s,
            engines=ENGINES_HOME + len(seen.vms),
            input_rate=window.input_rate,
            busy_s=window.event_s,
            cpu=tuple(self.cpu),
            limit_broken=seen.slot.latency_s >= self.latency_s,
        )

    def _rules(self, window: Window, seen: Seen) -> Mapping[str, str]:
        """Return what each plain rule would want, in VMs."""
        observation = self.observation(window, seen)
        if observation is None:
            return {}
        return plain_verdicts(observation, max(self.site.max_vms, len(seen.vms)), self.latency_s)


def busy_part(seen: Seen, slot_s: float) -> float:
    """Return the mean part of the slot in which the engines worked: used where no CPU use is measured."""
    return min(1.0, sum(seen.slot.busy_s.values()) / ((ENGINES_HOME + seen.serving) * slot_s))
