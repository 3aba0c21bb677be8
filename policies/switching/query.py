"""The scheduler's state of one query, and the switching functions applied to it."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Literal

from policies.signals import HOME, QuerySlot
from policies.slot import detached
from policies.switching.pausing import why_not_pause
from policies.switching.pinning import Pin
from policies.switching.sharing import AutoShare, FixedShare, ShareController
from policies.switching.stay import Stay
from policies.switching.switching import SwitchingSettings, phi_data, phi_vm

if TYPE_CHECKING:
    from policies.announcement import Announcement
    from policies.choose import PolicyOptions

Mode = Literal["auto", "data", "keys", "query", "off"]
Route = tuple[tuple[str, float], ...]

ALL_HOME: Route = ((HOME, 1.0),)
"""The route of a query that sends nothing to the cloud."""

_HOME_CAN_CARRY = 0.9
"""A query that was moved whole returns home when its input is below this part of home's measured capacity."""

HOT = 0.9
"""If one part of a keyed query has so much of the events, the others relieve home by too little."""

_JITTER = 0.1
"""Slots do not end exactly on time: tau counts as elapsed when at most this part of a slot is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuerySettings:
    """How one query is switched.

    Attributes:
        name: name of the query.
        switching: thresholds.
        latency_qos_s: L_QoS.
        mode: ``auto`` and ``data`` send a share, ``keys`` moves parts of the keys with their state, ``query`` moves all
            events, ``off`` keeps them home.
        share: fixed R in [0, 1]; None: found by feedback.
        switchable: whether a split can change no answer; ``QueryOpened`` corrects it once the plan is read.
        policy: decides when VMs start and are kept; None: equation 1 alone.
        announced: load that is known in advance, for which VMs are launched ahead of time.
        pause_most_s: how long events may be held while the query moves with its state.
        stay_s: how long it would stay away at least: the first block that a VM is billed for.
        dry_run: whether it is only told what would be done: its events stay home, and it launches no VM.
    """

    name: str
    switching: SwitchingSettings
    latency_qos_s: float
    mode: Mode = "auto"
    share: float | None = None
    switchable: bool = True
    policy: PolicyOptions | None = None
    announced: tuple[Announcement, ...] = ()
    pause_most_s: float = inf
    stay_s: float = inf
    dry_run: bool = False


class SwitchedQuery:
    """The scheduler's state of a query, with the switching functions.

    ``unpaid`` holds the reason if its own budget keeps it home; otherwise empty. ``kept_off`` holds, for each VM on
    which the query cannot run, the reason. A VM that is gone stays in it: the next one is likely to refuse the query
    too. ``pin`` is an operator's, which replaces equation 2 and the ranking. ``home_alone_s`` is its policy's
    (``Advice.home_alone_s``).
    """

    def __init__(self, settings: QuerySettings, slot_s: float) -> None:
        self.settings = settings
        self._slot_s = slot_s
        self.switchable = settings.switchable
        self.reason = "" if settings.switchable else "it may not be switched"
        self.pin: Pin | None = None
        self.unpaid = ""
        self.kept_off: dict[str, str] = {}
        self._no_vm_takes_it = ""
        self.whole = settings.mode == "query"
        self.divided = False
        self.controller = self._new_controller()
        self.stay = Stay(slot_s)
        self.slot = QuerySlot(query=settings.name, latency_s=0.0)
        self._shown: QuerySlot | None = None
        self.route = ALL_HOME
        self.high_since_s: float | None = None
        self.home_alone_s = 0.0
        self.raw_bytes = 0
        self.sent_bytes = 0

    @property
    def why_never(self) -> str:
        """Return why this query may not go to the cloud, whatever an operator says; empty if it may."""
        if self.settings.mode == "off":
            return "switching is off"
        if self.settings.dry_run and self.switchable:
            return "a dry run"
        return "" if self.switchable else self.reason

    @property
    def why_home(self) -> str:
        """Return why this query never goes to the cloud; empty if it may."""
        if self.why_never:
            return self.why_never
        if self.pin is not None and self.pin.share == 0:
            return self.pin.why
        return self.unpaid or self._no_vm_takes_it

    @property
    def pinned_share(self) -> float:
        """Return the part of its events that goes to VMs because of a pin; 0 without one, or if it may not."""
        if self.pin is None or self.why_home:
            return 0.0
        return 1.0 if self.whole else self.pin.share

    @property
    def left_undone(self) -> str:
        """What a dry run leaves undone, by the first condition of equation 1 and by equation 2."""
        latency_s, limits = self.slot.latency_s, self.settings.switching
        if latency_s >= limits.start_vm_above_s:
            return f"a VM would be launched: L {latency_s:.2f} s >= start_vm_above {limits.start_vm_above_s:g} s"
        if latency_s >= limits.send_above_s:
            return f"events would go to a VM that is ready: L {latency_s:.2f} s >= send_above {limits.send_above_s:g} s"
        return f"nothing would be done: L {latency_s:.2f} s < send_above {limits.send_above_s:g} s"

    @property
    def why_not_moved(self) -> str:
        """Return why it should not move with its state now; empty if it should, or has none."""
        if self.divided and self.slot.heaviest_part >= HOT:
            part = f"one part of its keys has {self.slot.heaviest_part:.0%} of the events"
            return f"{part}: a VM for the others would relieve home by too little"
        if slower := self.stay.why_slower():
            return slower
        if not self.slot.pause_s:
            return ""
        settings = self.settings
        excess_s = self.slot.latency_s - settings.switching.send_above_s
        return why_not_pause(
            self.slot.pause_s, excess_s=excess_s, stay_s=settings.stay_s, pause_most_s=settings.pause_most_s
        )

    @property
    def share(self) -> float:
        """Return the part of the events that goes to cloud lanes."""
        return 1.0 - self.route[0][1]

    @property
    def would_be_late(self) -> bool:
        """Return whether its policy foresees that home alone misses the target."""
        return self.home_alone_s > self.settings.latency_qos_s

    @property
    def whole_on(self) -> str:
        """Return the VM that has all of its events, of which no other VM could take any; empty if there is none."""
        return self.route[1][0] if self.whole and len(self.route) > 1 else ""

    @property
    def expected_bytes_per_s(self) -> float:
        """Return the bytes over the WAN if every event were sent, at the compression so far."""
        return self.slot.input_bytes_per_s * self.sent_part

    @property
    def sent_part(self) -> float:
        """Return bytes over the WAN per raw byte so far; 1 before anything was sent."""
        return self.sent_bytes / self.raw_bytes if self.raw_bytes else 1.0

    def opened(self, *, switchable: bool, reason: str, whole: bool = False, divided: bool = False) -> None:
        """Take the properties of its plan; VMs that could not run it may be tried again.

        Args:
            switchable: whether its events may go to VMs.
            reason: why not.
            whole: whether only all of them may, since it keeps state.
            divided: whether parts of its keys may, with their state.
        """
        self.divided = divided
        if self.whole != (whole or self.settings.mode == "query"):
            self.whole = not self.whole
            self.controller = self._new_controller()
        self.switchable = switchable
        self.reason = reason or ("" if switchable else "it may not be switched")
        self.kept_off.clear()
        self._no_vm_takes_it = ""

    def adjust(self, settings: QuerySettings) -> None:
        """Use other settings from now on; what is known of the query stays."""
        other_share = settings.share != self.settings.share
        self.settings = settings
        if other_share:
            self.controller = self._new_controller()

    def usable(self, ready: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the ready VMs can run it; where none can, ``why_home`` says so from now on."""
        self.stay.keep(ready)
        if not self.kept_off:
            return ready
        found = tuple(vm for vm in ready if vm not in self.kept_off)
        vm, why = next(reversed(self.kept_off.items()))
        self._no_vm_takes_it = "" if found else f"{vm} cannot run it: {why}"
        return found

    def observe(self, slot: QuerySlot) -> None:
        """Take the profiler's measurements."""
        self.slot, self._shown = slot, None
        if self.whole:
            self.stay.observe(self.whole_on, slot, self.settings.switching.send_above_s)
        if slot.raw_bytes or slot.sent_bytes:
            self.raw_bytes += sum(slot.raw_bytes.values())
            self.sent_bytes += sum(slot.sent_bytes.values())

    @property
    def shown(self) -> QuerySlot:
        """Return the last slot, read-only."""
        if self._shown is None:
            self._shown = detached(self.slot)
        return self._shown

    def asks_for_vm(self) -> bool:
        """Return whether L >= L_s, the first condition of equation 1."""
        if self.why_home or self.slot.latency_s < self.settings.switching.start_vm_above_s:
            return False
        return not self.why_not_moved

    def vm_is_due(self, at_s: float) -> bool:
        """Return whether equation 1 starts a VM: L >= L_s has held for tau."""
        return self._phi_vm(False, at_s, period_bytes=0, period_ends=False)

    def keeps_vm(self, period_bytes: int, at_s: float) -> bool:
        """Return whether equation 1 keeps a VM, to which this many bytes were sent, for another period."""
        return not self.why_home and self._phi_vm(True, at_s, period_bytes=period_bytes, period_ends=True)

    def _phi_vm(self, before: bool, at_s: float, *, period_bytes: int, period_ends: bool) -> bool:
        high_for_s = 0.0 if self.high_since_s is None else at_s - self.high_since_s + _JITTER * self._slot_s
        return phi_vm(
            self.settings.switching,
            before=before,
            latency_s=self.slot.latency_s,
            high_for_s=high_for_s,
            period_bytes=period_bytes,
            period_ends=period_ends,
        )

    def wants_cloud(self, *, vm_before: bool, vm_ready: bool, switched: bool) -> bool:
        """Return equation 2; False for a pinned query, which the ranking leaves out.

        A query with state, or one that was moved whole, also stays in the cloud while home could not carry it. Little
        completes at home then, so the equation would see no latency, move it back and then away again, for ever.
        """
        if self.why_home or self.pin is not None:
            return False
        latency_s = self.slot.latency_s
        ahead = vm_before and vm_ready and self.would_be_late
        if ahead or phi_data(self.settings.switching, vm_before=vm_before, vm_ready=vm_ready, latency_s=latency_s):
            return not self.why_not_moved
        carried = (self.whole or self.divided) and switched and vm_ready and self._home_cannot_carry()
        return carried and not self.why_not_moved

    def _new_controller(self) -> ShareController:
        if self.whole:
            return FixedShare(1.0)
        share = self.settings.share
        return AutoShare(self._slot_s) if share is None else FixedShare(share)

    def _home_cannot_carry(self) -> bool:
        home_rate = self.slot.rates.get(HOME)
        return home_rate is not None and self.slot.input_rate >= _HOME_CAN_CARRY * home_rate
