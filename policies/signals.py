"""The events and commands of the scheduler, and its decisions, one for each query and slot.

All times are seconds of the caller's monotonic clock. ``event_id`` is the caller's name of an event; every command
carries the event that caused it, so a log shows why a VM was started.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from policies.advice import Advice, Option, PolicyAnswer, Question
from policies.money.billing import NO_TRAFFIC, Traffic
from policies.money.ledger import LedgerState
from policies.quota.requests import Allowance
from policies.slot import HOME as HOME
from policies.slot import QuerySlot as QuerySlot

if TYPE_CHECKING:
    from policies.gaussian.forecaster import Trained, TrainingSet
    from policies.queueing.loadtable import LoadTable, QueueShape

# -------------------------------------------------------------------------------------------------------------- events


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events."""

    event_id: str
    at_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotEnded(Event):
    """A slot is over: thresholds, shares and billing periods are evaluated, at once or when the policies have answered.

    If a query has a policy, the only command is ``Ask``, and the slot is evaluated upon ``SlotAnswered``.

    ``wall_s`` is seconds since 1970, for the budget's hours and days; None if ``at_s`` is that already. ``cpu`` is the
    CPU use of each lane's engine host, in [0, 1]; a host that does not report it is absent. ``traffic`` is that of each
    VM's links since the last slot; where it is absent, as in simulations, the payloads of the queries count.
    """

    queries: tuple[QuerySlot, ...]
    wall_s: float | None = None
    cpu: Mapping[str, float] = field(default_factory=dict)
    traffic: Mapping[str, Traffic] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotAnswered(Event):
    """The answer to ``Ask``: the policies' answers about the slot that ended, which is evaluated now.

    Other events may come between the two, but not the end of another slot.
    """

    turn: int
    answers: tuple[PolicyAnswer, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted(Event):
    """The answer to ``Fit``: a model or a table for each part of it, or the reason why there is none."""

    query: str
    models: tuple[Trained | LoadTable, ...] = field(repr=False)
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRestored(Event):
    """The money that an earlier gateway spent counts from now on; only allowed before any VM was started."""

    state: LedgerState = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class BootsRestored(Event):
    """The boots that an earlier gateway saw, in seconds, the oldest first; only allowed before any VM was started."""

    boots_s: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetFrozen(Event):
    """Nothing more may be reserved, for this reason; without a reason it may be again."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaGranted(Event):
    """What the gateway may use from now on of the quota that it shares with others; nothing before the first one."""

    allowance: Allowance


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryOpened(Event):
    """A query's plan is known: whether it may be switched and, if not, why; and in which way.

    ``whole``: only all of its events may go to a VM. ``divided``: parts of its keys may, with their state.
    """

    query: str
    switchable: bool
    reason: str = ""
    whole: bool = False
    divided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryKeptOff(Event):
    """A query cannot run on a VM that serves others, for this reason; ``QueryOpened`` allows another try."""

    query: str
    vm: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VmReady(Event):
    """A started VM serves the queries; the cloud bills it since ``billing_since_s``.

    ``usd_per_hour`` is the price of its size, if it is known; otherwise the price of the terms counts, which no size
    exceeds. ``setbacks`` are the failures before it was ready, for people.
    """

    vm: str
    billing_since_s: float
    usd_per_hour: float | None = None
    setbacks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class VmAdopted(Event):
    """A VM that an earlier gateway rented serves all queries of this one.

    Attributes:
        vm: its name, which no VM of this gateway has.
        billing_since_s: when the cloud began to bill it.
        booked_s: its cost up to the end of the block that contains this time is booked already.
        usd_per_hour: the price of its size; None: the price of the terms.
    """

    vm: str
    billing_since_s: float
    booked_s: float
    usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VmFailed(Event):
    """A launch failed.

    Attributes:
        vm: its name.
        reason: one sentence.
        billed: whether a VM existed, or may have; otherwise nothing will be billed for it.
        after_s: the pause that the cloud asks for.
    """

    vm: str
    reason: str
    billed: bool = False
    after_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class VmLost(Event):
    """A VM does not answer any more, whatever the cloud reports about it."""

    vm: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VmReclaimed(Event):
    """The cloud has announced that it will reclaim a spot VM at ``ends_s``.

    A VM that is reclaimed without such a notice is lost, like any other.
    """

    vm: str
    ends_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class VmDrained(Event):
    """A draining VM has no open run left."""

    vm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VmGone(Event):
    """The cloud has terminated a VM: the answer to every ``TerminateVm``; ``traffic`` is that since the last slot."""

    vm: str
    traffic: Traffic = NO_TRAFFIC


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainAll(Event):
    """The gateway reads no more: VMs help with what was read, but none is started any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAll(Event):
    """The gateway shuts down: every VM is terminated and none is launched again."""


# ------------------------------------------------------------------------------------------------------------ commands


@dataclass(frozen=True, slots=True)
class Cause:
    """The event behind a command, and the reason as a sentence."""

    event_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartVm:
    """Launch a VM with this name; answered by ``VmReady`` or ``VmFailed``."""

    vm: str
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainVm:
    """Send the VM no more runs and let it finish those it has; answered by ``VmDrained``."""

    vm: str
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class TerminateVm:
    """Terminate the VM now; its open runs are dispatched elsewhere; answered by ``VmGone``, even for an unknown VM."""

    vm: str
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class SetRoute:
    """Route a query's runs like this from now on: pairs of lane and share, ``home`` first, summing to 1.

    Every query starts with all its events at home; that first route is not announced.
    """

    query: str
    shares: tuple[tuple[str, float], ...]
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Train a model on each training set, and simulate each queue, where it delays nothing; answered by ``Fitted``."""

    query: str
    training: tuple[TrainingSet | QueueShape, ...] = field(repr=False)
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class SetShed:
    """Discard this share of a query's events from now on; 0 at first, which is not announced."""

    query: str
    share: float
    cause: Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Ask the policies about the slot that ended; answered by ``SlotAnswered``.

    The questions alone determine a policy's state: a policy that gets all questions so far, in the order of their
    ``turn``, gives the same answers again. ``turn`` counts the questions of this scheduler from 1.
    """

    turn: int
    questions: tuple[Question, ...] = field(repr=False)
    cause: Cause


Command = StartVm | DrainVm | TerminateVm | SetRoute | SetShed | Fit | Ask


# ----------------------------------------------------------------------------------------------------------- decisions


class BootEstimate(NamedTuple):
    """How long a VM that is ordered now will take until it serves.

    Attributes:
        configured_s: what the config says.
        expected_s: what is expected, from the config and the boots that were seen.
        boots: how many boots count.
    """

    configured_s: float
    expected_s: float
    boots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about a query in a slot, with its reason.

    Attributes:
        query: name of the query.
        at_s: end of the slot.
        latency_s: L_t.
        phi_vm: equation 1: whether any VM is wanted (starting or ready).
        phi_data: equation 2 and the ranking: whether this query's events go to the cloud.
        share: R, the part of the events that goes to cloud lanes.
        verdict: one sentence.
        slot: the measurements.
        vms: state of each live VM.
        policy: the name of the policy that decides when VMs start and are kept.
        advice: its answer.
        vm_note: the state of the next VM.
        boot: how long a VM that is ordered now takes until it serves.
        slow: a sentence for each VM that takes long to start.
        equations: what equations 1 and 2 say, with their numbers.
        rules: what each plain rule would want, by its name, as a sentence.
        options: what other numbers of VMs would have cost.
    """

    query: str
    at_s: float
    latency_s: float
    phi_vm: bool
    phi_data: bool
    share: float
    verdict: str
    slot: QuerySlot
    vms: Mapping[str, str]
    policy: str
    advice: Advice
    vm_note: str
    boot: BootEstimate
    slow: tuple[str, ...] = ()
    equations: tuple[str, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
