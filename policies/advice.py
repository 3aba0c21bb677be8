"""The input of a policy in each slot, and its answer: how many VMs are wanted, why, and the options it rejected.

A policy decides ahead of time when VMs start and are kept. It does not decide which events go to them (equation 2), nor
about the budget and ``max_vms``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from policies.money.billing import BillingTerms
from policies.slot import QuerySlot

if TYPE_CHECKING:
    from policies.announcement import Announcement
    from policies.gaussian.forecaster import Trained, TrainingSet
    from policies.queueing.loadtable import LoadTable, QueueShape

ENGINES_HOME = 1
"""The private cluster counts as one engine, so one engine means that no VM is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The settings that all queries share.

    Attributes:
        max_vms: the limit of VMs that live at a time.
        terms: the cloud's prices.
        boot_s: from the order of a VM until it serves, as configured; what counts is ``Seen.boot_s``.
        slot_s: length of a slot.
    """

    max_vms: int
    terms: BillingTerms
    boot_s: float
    slot_s: float

    def prices(self, chosen: int) -> tuple[Option, ...]:
        """Return the price of one VM fewer, as many, and one more in a billing period."""
        counts = sorted({max(0, chosen - 1), chosen, min(chosen + 1, self.max_vms)})
        return tuple(Option(vms, vms * self.terms.time_usd(self.terms.period_s)) for vms in counts)


@dataclass(frozen=True, slots=True)
class StandingVm:
    """A VM that serves or boots.

    Attributes:
        ready_in_s: seconds until it serves; 0 if it serves already.
        paid_for_s: from now until the end of the billing block that is paid for.
    """

    ready_in_s: float
    paid_for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """The input of a policy when a slot has ended.

    Attributes:
        at_s: now.
        wall_s: now, in seconds since 1970: daily cycles follow the wall clock.
        slot: the measurements of its query.
        boot_s: how long a VM that is ordered now is expected to take until it serves (``policies.vms.boots``).
        vms: those that serve or boot.
        cpu: mean use of the engines' CPUs, each in [0, 1]; None where it is not measured.
        sent_part: bytes over the WAN per raw byte, so far.
    """

    at_s: float
    wall_s: float
    slot: QuerySlot
    boot_s: float
    vms: tuple[StandingVm, ...] = ()
    cpu: float | None = None
    sent_part: float = 1.0

    @property
    def serving(self) -> int:
        """Return how many VMs serve."""
        return sum(vm.ready_in_s <= 0 for vm in self.vms)


@dataclass(frozen=True, slots=True)
class Expected:
    """A forecast: events per second, with the interval that contains 90 % of the values.

    Attributes:
        in_s: how far ahead of now.
        rate: the expected value.
        low: lower end of the interval.
        high: its upper end.
    """

    in_s: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Option:
    """The total cost (VMs, traffic and late events) of having this many VMs at ``Expected.in_s``."""

    vms: int
    usd: float


@dataclass(frozen=True, slots=True)
class Load:
    """A query's offered load, lambda / mu: how many engines of a VM's speed its events keep busy.

    Attributes:
        ahead: at the time when a VM that is ordered now serves.
        most: the maximum from now until then.
        home_engines: how many VMs the private cluster is worth to it.
    """

    ahead: float
    most: float
    home_engines: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A policy's answer.

    Attributes:
        wanted: how many VMs should serve or boot now; None: equation 1 decides starts and ends.
        kept: how many are kept when their billing periods end; at least ``wanted``.
        why: the reason as a sentence.
        expected: the forecast, if there is one.
        rules: what each plain rule would want, by its name, as a sentence.
        options: the chosen option and the rejected ones, with their costs.
        load: added up with the other queries' loads; None: ``wanted`` stands alone.
        rising_to: the largest number of VMs that will be wanted within a billing period; 0 if no rise is foreseen.
        phi_starts: whether equation 1 may also start a VM when the limit is broken, if it may under this policy.
        at_once: whether VMs are launched even if the last launch or termination was less than a billing period ago.
        home_alone_s: how long events will wait soon if none goes to VMs. Above the target they go to VMs that are
            ready, although equation 2 would wait until they are late.
    """

    wanted: int | None = None
    kept: int = 0
    why: str = ""
    expected: Expected | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    load: Load | None = None
    rising_to: int = 0
    phi_starts: bool = True
    at_once: bool = False
    home_alone_s: float = 0.0

    def __post_init__(self) -> None:
        # Advice is kept from slot to slot and shown to others, so nobody may change it.
        object.__setattr__(self, "rules", MappingProxyType(dict(self.rules)))


@dataclass(frozen=True, slots=True)
class FitOrder:
    """What is to be computed elsewhere, in this order: a model for each training set, a table for each queue."""

    training: tuple[TrainingSet | QueueShape, ...]


class VmPolicy(ABC):
    """Decides for one query how many VMs are wanted.

    Attributes:
        name: as in the config.
        insists: whether its VMs are launched and kept even if they are of no use.
        phi_starts: whether equation 1 also starts a VM when the limit is broken, whatever the policy says.
    """

    name: str
    insists = False
    phi_starts = True

    @abstractmethod
    def advise(self, seen: Seen) -> Advice:
        """Take the measurements of a slot and return what is wanted now; called once a slot."""

    def announce(self, announced: tuple[Announcement, ...]) -> None:  # noqa: B027 -- most have none
        """Take other announcements of load; what was learned stays."""

    def fit_order(self) -> FitOrder | None:
        """Return what should be trained now, if anything; not called again before ``fitted``."""
        return None

    def fitted(self, models: tuple[Trained | LoadTable, ...], trouble: str) -> None:
        """Take the result of the order: its models, or the reason why there are none."""
        raise ValueError(f"{self.name} never asked for {len(models)} models ({trouble})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAnswer:
    """The answer of a query's policy when a slot has ended.

    Attributes:
        query: the policy's query.
        advice: what is wanted; None: the last advice still holds.
        order: what should be trained, if anything.
    """

    query: str
    advice: Advice | None
    order: FitOrder | None = None


@dataclass(frozen=True, slots=True)
class Training:
    """The result of a ``FitOrder``: a model or a table for each part of it, or the reason why there is none."""

    models: tuple[Trained | LoadTable, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The question to a policy when a slot has ended: everything that it has not seen yet.

    Attributes:
        query: the policy's query.
        seen: the measurements.
        training: the result of its last order, once it is there.
        learns: whether it may order a training.
    """

    query: str
    seen: Seen
    training: Training | None = None
    learns: bool = True


class Reactive(VmPolicy):
    """Equation 1 alone (ESM): a VM is launched when the latency is too high, and terminated when it has recovered."""

    name = "reactive"

    def advise(self, seen: Seen) -> Advice:  # noqa: ARG002
        """Leave the decision to equation 1."""
        return Advice()
