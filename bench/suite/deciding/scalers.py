"""Rules of other autoscalers, as policies: they decide through the gateway's own scheduler, in virtual time.

Each VM stands for what the rule scales: a task manager, a pod. Options are the defaults of each.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Callable

from policies.advice import ENGINES_HOME, Advice, Seen, VmPolicy

MOST_VMS = 8


class Rule(VmPolicy):
    """A rule that looks at the last slots every now and then.

    Args:
        every_s: how often it decides.
        slot_s: length of a slot.
    """

    name = "peer"
    insists = True
    phi_starts = False

    def __init__(self, every_s: float, slot_s: float) -> None:
        self._every_slots = max(1, round(every_s / slot_s))
        self._slots = 0
        self._vms = 0
        self._event_s: float | None = None

    def advise(self, seen: Seen) -> Advice:
        """See ``VmPolicy.advise``."""
        events = sum(seen.slot.completed_events.values())
        if events:
            self._event_s = sum(seen.slot.busy_s.values()) / events
        self.watch(seen)
        self._slots += 1
        if self._slots % self._every_slots == 0 and self._event_s is not None:
            self._vms = min(MOST_VMS, max(0, self.engines(seen, self._event_s) - ENGINES_HOME))
        return Advice(wanted=self._vms, kept=self._vms, why=self.name)

    def watch(self, seen: Seen) -> None:
        """Note a slot."""

    @abstractmethod
    def engines(self, seen: Seen, event_s: float, /) -> int:
        """Return how many engines are wanted, home being one."""


class Ds2(Rule):
    """DS2 (Kalavri et al., OSDI 2018): as many engines as the input needs at their true rate, every 10 s."""

    def __init__(self, slot_s: float) -> None:
        super().__init__(10.0, slot_s)
        self._rates: deque[float] = deque(maxlen=self._every_slots)

    def watch(self, seen: Seen) -> None:
        """See ``Rule.watch``."""
        self._rates.append(seen.slot.input_rate)

    def engines(self, _seen: Seen, event_s: float, /) -> int:
        """See ``Rule.engines``."""
        return max(1, math.ceil(sum(self._rates) / len(self._rates) * event_s - 1e-9))


class FlinkAutoscaler(Rule):
    """Flink's autoscaler with its defaults.

    The mean over 15 minutes, a target utilisation of 0.7 between 0.4 and 1.0, 5 minutes of stabilisation after a
    change, and a backlog that is to be worked off within 30 minutes.
    """

    WINDOW_S, TARGET, LOW, HIGH, STABILISE_S, CATCH_UP_S = 900.0, 0.7, 0.4, 1.0, 300.0, 1_800.0

    def __init__(self, slot_s: float) -> None:
        super().__init__(60.0, slot_s)
        self._rates: deque[float] = deque(maxlen=round(self.WINDOW_S / slot_s))
        self._quiet_until_s = self.STABILISE_S

    def watch(self, seen: Seen) -> None:
        """See ``Rule.watch``."""
        self._rates.append(seen.slot.input_rate)

    def engines(self, seen: Seen, event_s: float, /) -> int:
        """See ``Rule.engines``."""
        now = self._vms + ENGINES_HOME
        if seen.at_s < self._quiet_until_s:
            return now
        rate = sum(self._rates) / len(self._rates) + seen.slot.backlog_events / self.CATCH_UP_S
        use = rate * event_s / now
        if self.LOW <= use <= self.HIGH:
            return now
        self._quiet_until_s = seen.at_s + self.STABILISE_S
        return max(1, math.ceil(rate * event_s / self.TARGET))


class KedaLag(Rule):
    """KEDA's Kafka scaler with its defaults: a pod for each 10 events of lag, asked for each 30 s.

    The autoscaler of pods adds at most four, or as many as there are, each 15 s, and removes some only after the
    greatest wish of five minutes is lower.
    """

    LAG, POLL_S, STABILISE_S = 10.0, 30.0, 300.0

    def __init__(self, slot_s: float) -> None:
        super().__init__(15.0, slot_s)
        self._polls = 0
        self._wish = 1
        self._wishes: deque[int] = deque(maxlen=round(self.STABILISE_S / 15.0))

    def engines(self, seen: Seen, _event_s: float, /) -> int:
        """See ``Rule.engines``."""
        now = self._vms + ENGINES_HOME
        if self._polls % round(self.POLL_S / 15.0) == 0:
            self._wish = max(1, math.ceil(seen.slot.backlog_events / self.LAG))
        self._polls += 1
        self._wishes.append(self._wish)
        if self._wish > now:
            return min(self._wish, now + max(4, now))
        return min(now, max(self._wishes))


class CpuThreshold(Rule):
    """One engine more above 70 % CPU in two windows of 5 s, one fewer below 50 % (as in Mayer et al., VI-B)."""

    HIGH, LOW = 0.7, 0.5

    def __init__(self, slot_s: float) -> None:
        super().__init__(10.0, slot_s)
        self._used: deque[float] = deque(maxlen=self._every_slots)
        self._slot_s = slot_s

    def watch(self, seen: Seen) -> None:
        """See ``Rule.watch``."""
        serving = ENGINES_HOME + seen.serving
        self._used.append(min(1.0, sum(seen.slot.busy_s.values()) / (serving * self._slot_s)))

    def engines(self, _seen: Seen, _event_s: float, /) -> int:
        """See ``Rule.engines``."""
        now, half = self._vms + ENGINES_HOME, len(self._used) // 2
        windows = [list(self._used)[:half], list(self._used)[half:]]
        loads = [sum(window) / max(1, len(window)) for window in windows]
        if min(loads) > self.HIGH:
            return now + 1
        return max(1, now - 1) if max(loads) < self.LOW else now


PEERS: dict[str, Callable[[float], VmPolicy]] = {
    "DS2": Ds2,
    "Flink autoscaler": FlinkAutoscaler,
    "KEDA, Kafka lag": KedaLag,
    "CPU 70 %": CpuThreshold,
}
