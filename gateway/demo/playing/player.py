"""Plays the demo: measures the rate that home sustains, then plays the profile in each mode."""

from __future__ import annotations

import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engines.email.mailbox import Mail
from gateway.demo.load import DemoPace, RateSegment, event_count, loops_needed, spikes
from gateway.demo.playing.progress import Stages
from gateway.demo.repeated import order
from gateway.demo.report import TITLES, Mode, ModeRun, Policy, RunsByMode
from gateway.demo.stage import BOOT_S, COLD_BOOT_S, Stage, StageError
from gateway.demo.verify import ExpectedResults, verify
from gateway.views.runrecord import GatewayRecord

_FILLING_SLOTS: Final = 2
DEADLINE_S: Final = 240.0
START_VM_ABOVE_S, SEND_ABOVE_S, KEEP_VM_ABOVE_S = 3.0, 2.0, 1.0
SWITCHING: Final = {
    "start_vm_above": f"{START_VM_ABOVE_S:g}s",
    "send_above": f"{SEND_ABOVE_S:g}s",
    "keep_vm_above": f"{KEEP_VM_ABOVE_S:g}s",
    "keep_vm_bytes": "1MB",
    "tolerance": "1s",
}
# Most of the mail goes to the VM from the first moment on: home has its own afterwards.
WARM_UP: Final = {
    "switching": {
        "mode": "data",
        "share": "65%",
        "start_vm_above": "20ms",
        "send_above": "10ms",
        "keep_vm_above": "5ms",
        "tolerance": "0s",
    }
}
OFF: Final = {"switching": {**SWITCHING, "mode": "off"}}
_PAYLOADS: Final[Mapping[Mode, Mapping[str, Any]]] = {
    "elastic": {"trim": False, "filter": False, "compress": "none"},
    "elastic_compressed": {"trim": True, "filter": True, "compress": "auto"},
}


@dataclass(frozen=True, slots=True)
class PlayedRun:
    """A run: the rate that home sustained just before, the profile that follows from it, and what each mode did."""

    capacity: float
    profile: Sequence[RateSegment]
    by_mode: RunsByMode


class Player(ABC):
    """Plays mail on a stage.

    Args:
        stage: where.
        base: the distinct mails.
        stages: told how far it is.
        cold: whether VMs start their Spark only once they are ordered.
        policy: what decides about VMs.
    """

    def __init__(self, stage: Stage, base: Sequence[Mail], stages: Stages, cold: bool, policy: Policy) -> None:
        self.stage, self.base, self.stages, self.cold = stage, base, stages, cold
        self._policy = policy

    @abstractmethod
    def warm_up(self, pace: DemoPace) -> None:
        """Play until the engines have compiled what they need."""

    @abstractmethod
    def sustained(self, name: str, title: str, pace: DemoPace) -> float:
        """Return the mails/s that home sustains now."""

    @abstractmethod
    def play_mode(
        self, name: str, title: str, mode: Mode, profile: Sequence[RateSegment], *, keep_hosts: bool
    ) -> ModeRun:
        """Play the profile in a mode."""

    @abstractmethod
    def forget(self, name: str) -> None:
        """Remove the results of a mode."""

    def close(self) -> None:  # noqa: B027 -- most players leave nothing
        """Remove what is not on the stage; no engine runs any more."""

    def query(self, mode: Mode) -> Mapping[str, Any]:
        """Return what the config of a mode says besides source, SQL and sink."""
        if mode == "private_only":
            return OFF
        return {"switching": SWITCHING, "payload": _PAYLOADS[mode], "policy": {"type": self._policy}}

    def play_run(self, pace: DemoPace, run: int, runs: int) -> PlayedRun:
        """Measure what home sustains now, and play each mode.

        Home's speed differs from run to run: its host goes on compiling, and the machine has other work.
        """
        name, title = "sustained", "the rate that home sustains"
        if runs > 1:
            name, title = f"{name}-{run + 1}", f"run {run + 1}, {title}"
        capacity = self.sustained(name, title, pace)
        profile = spikes(capacity, pace)
        return PlayedRun(capacity, profile, self._play_modes(profile, run, runs))

    def _play_modes(self, profile: Sequence[RateSegment], run: int, runs: int) -> RunsByMode:
        """Play the profile in each mode, in the order of a run; results stay if there is one run."""
        played: RunsByMode = {}
        modes = order(run)
        for mode in modes:
            name, title = (mode, TITLES[mode]) if runs == 1 else (f"{mode}-{run + 1}", f"run {run + 1}, {TITLES[mode]}")
            last = run == runs - 1 and mode == modes[-1]
            played[mode] = self.play_mode(name, title, mode, profile, keep_hosts=not last)
            if runs > 1:
                self.forget(name)
        return {mode: played[mode] for mode in TITLES}


class FilePlayer(Player):
    """Plays from a file of mails into files of results."""

    def warm_up(self, pace: DemoPace) -> None:
        """See ``Player.warm_up``."""
        # A VM that starts later cannot be warmed up before.
        self._play_all_out("warm-up", "warm-up", OFF if pace.cold else WARM_UP, pace.warm_up_events)

    def sustained(self, name: str, title: str, pace: DemoPace) -> float:
        """See ``Player.sustained``."""
        return _sustained(self._play_all_out(name, title, OFF, pace.capacity_events))

    def forget(self, name: str) -> None:
        """See ``Player.forget``."""
        self.stage.forget(name)

    def play_mode(
        self, name: str, title: str, mode: Mode, profile: Sequence[RateSegment], *, keep_hosts: bool
    ) -> ModeRun:
        """See ``Player.play_mode``."""
        loops = loops_needed(event_count(profile), len(self.base))
        planned_s = sum(step.duration_s for step in profile)
        bar = self.stages.begin(title, planned_s)

        def show(elapsed_s: float, status: Mapping[str, Any]) -> None:
            self.stages.show(bar, min(elapsed_s, planned_s), how_it_is(name, status))

        record = self.stage.play(
            name,
            {
                "profile": [{"for": f"{step.duration_s:g}s", "rate": f"{step.events_per_s:.3f}/s"} for step in profile],
                "loops": loops,
                "id": "message_id",
            },
            self.query(mode),
            show,
            boot_s=COLD_BOOT_S if self.cold else BOOT_S,
            cold=self.cold,
            keep_hosts=keep_hosts,
            deadline_s=DEADLINE_S + planned_s,
        )
        self.stages.end(bar, planned_s, f"mean latency {record.totals.latency_ms.mean / 1e3:.2f} s")
        verdict = verify(self.stage.sink(name), ExpectedResults(self.base), loops * len(self.base))
        return ModeRun(record=record, verdict=verdict)

    def _play_all_out(self, name: str, title: str, query: Mapping[str, Any], events: int) -> GatewayRecord:
        """Play ``events`` mails as fast as the engines process them."""
        bar = self.stages.begin(title, events)

        def show(_: float, status: Mapping[str, Any]) -> None:
            said = status["queries"].get(name)
            if said:
                self.stages.show(bar, said["events"], f"{said['events']} mails")

        replay = {"loops": loops_needed(events, len(self.base)), "id": "message_id"}
        record = self.stage.play(
            name, replay, query, show, boot_s=0, cold=self.cold, keep_hosts=True, deadline_s=DEADLINE_S
        )
        self.stages.end(bar, events, f"{record.totals.events} mails")
        return record


def _sustained(record: GatewayRecord) -> float:
    """Return the events/s that an engine sustained: the mean over the full slots of the second half.

    In the first half its JIT compilers still work: measured there, a spike of twice the capacity would be far less.
    """
    slots = record.slots
    rates = [slot.completed_rate for slot in slots[max(_FILLING_SLOTS, len(slots) // 2) : -1]]
    if not rates:
        raise StageError(
            "too few slots to measure the rate that home sustains; this machine is too fast for the demo's load"
        )
    return statistics.fmean(rates)


def how_it_is(name: str, status: Mapping[str, Any]) -> str:
    """Return what a gateway's status says of the query of a mode."""
    query = status["queries"].get(name)
    if not query:
        return str(status["phase"])
    vms = ", ".join(f"{name} {state}" for name, state in status["vms"].items()) or "no VM"
    return (
        f"{query['events']} mails, {query['latency_s']:.1f} s late, {vms}, {query['share_to_cloud']:.0%} to the cloud"
    )
