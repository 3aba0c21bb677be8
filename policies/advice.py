"""What a policy sees in each slot, and its answer: how many VMs are wanted, why, and the options it rejected.

A policy says when VMs start and are kept, ahead of time. Which events go to them (equation 2), the budget and
``max_vms`` are no business of its.
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
    from policies.gaussian.forecaster import Trained, TrainingSet

ENGINES_HOME = 1
"""The private cluster counts as one engine, so that as many engines as 1 means that no VM is wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """What is the same for all queries.

    Attributes:
        max_vms: at most so many VMs live at a time.
        terms: what the cloud charges.
        boot_s: from asking for a VM until it serves.
        slot_s: length of a slot.
    """

    max_vms: int
    terms: BillingTerms
    boot_s: float
    slot_s: float


@dataclass(frozen=True, slots=True)
class StandingVm:
    """A VM that serves or boots.

    Attributes:
        ready_in_s: when it serves; 0 if it does.
        paid_for_s: from now until the end of the billing block that is paid for.
    """

    ready_in_s: float
    paid_for_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a policy looks at when a slot has ended.

    Attributes:
        at_s: now.
        wall_s: now, in seconds since 1970: cycles of a day are cycles of the clock that people live by.
        slot: what was measured of its query.
        vms: those that serve or boot.
        cpu: mean use of the engines' CPUs, each in [0, 1]; None where nobody measures it.
        sent_part: bytes over the WAN per raw byte, so far.
    """

    at_s: float
    wall_s: float
    slot: QuerySlot
    vms: tuple[StandingVm, ...] = ()
    cpu: float | None = None
    sent_part: float = 1.0

    @property
    def serving(self) -> int:
        """Return how many VMs serve."""
        return sum(vm.ready_in_s <= 0 for vm in self.vms)


@dataclass(frozen=True, slots=True)
class Expected:
    """A forecast: events per second, with the interval that holds nine of ten.

    Attributes:
        in_s: so far ahead of now.
        rate: what is expected.
        low: lower end of the interval.
        high: its upper end.
    """

    in_s: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Option:
    """What it would cost, VMs, traffic and late events together, to have so many VMs at ``Expected.in_s``."""

    vms: int
    usd: float


@dataclass(frozen=True, slots=True)
class Load:
    """A query's offered load, lambda / mu: how many engines like a VM its events keep busy.

    Attributes:
        ahead: when a VM that is asked for now serves.
        most: the most from now until then.
        home_engines: how many VMs the private cluster is worth to it.
    """

    ahead: float
    most: float
    home_engines: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What a policy says.

    Attributes:
        wanted: how many VMs are to serve or boot now; None leaves starts and ends to equation 1.
        kept: how many are kept when their billing periods end; never less than ``wanted``.
        why: the reason as a sentence.
        expected: the forecast, if there is one.
        rules: what each plain rule would want, by its name, as a sentence.
        options: what was chosen, and what was not, with what it costs.
        load: what is added up with the other queries' loads; None: its wish stands for itself.
        rising_to: the most VMs that are foreseen to be wanted within a billing period; 0 if none are foreseen.
    """

    wanted: int | None = None
    kept: int = 0
    why: str = ""
    expected: Expected | None = None
    rules: Mapping[str, str] = field(default_factory=dict)
    options: tuple[Option, ...] = ()
    load: Load | None = None
    rising_to: int = 0

    def __post_init__(self) -> None:
        # Advice is kept from slot to slot and shown to whoever asks: nobody may change it.
        object.__setattr__(self, "rules", MappingProxyType(dict(self.rules)))


@dataclass(frozen=True, slots=True)
class FitOrder:
    """Models to be trained elsewhere: one for each training set, in this order."""

    training: tuple[TrainingSet, ...]
    seed: int


class VmPolicy(ABC):
    """Says for one query how many VMs are wanted.

    Attributes:
        name: as in the config.
        phi_starts: whether equation 1 still starts a VM when the limit is really broken, whatever the policy says.
    """

    name: str
    phi_starts = True

    @abstractmethod
    def advise(self, seen: Seen) -> Advice:
        """Take in a slot and return what is wanted now; called once a slot."""

    def fit_order(self) -> FitOrder | None:
        """Return what is to be trained now, if anything; it is not asked for again before ``fitted``."""
        return None

    def fitted(self, models: tuple[Trained, ...], trouble: str) -> None:
        """Take in what came of the order: its models, or why there are none."""
        raise ValueError(f"{self.name} never asked for {len(models)} models ({trouble})")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAnswer:
    """What a policy says when a slot has ended.

    Attributes:
        query: whose policy it is.
        advice: what is wanted; None: its last advice still holds.
        order: what is to be trained, if anything.
    """

    query: str
    advice: Advice | None
    order: FitOrder | None = None


@dataclass(frozen=True, slots=True)
class Training:
    """What came of a ``FitOrder``: a model for each training set, or why there is none."""

    models: tuple[Trained, ...]
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What a policy is asked when a slot has ended: all that it has not seen yet.

    Attributes:
        query: whose policy it is.
        seen: what it is shown.
        training: what came of its last order, if that is there.
        learns: whether it may ask for a training.
    """

    query: str
    seen: Seen
    training: Training | None = None
    learns: bool = True


class Reactive(VmPolicy):
    """Equation 1 alone (ESM): a VM is launched when the latency is too high, and terminated when it has recovered."""

    name = "reactive"

    def advise(self, seen: Seen) -> Advice:  # noqa: ARG002
        """Leave it to equation 1."""
        return Advice()
