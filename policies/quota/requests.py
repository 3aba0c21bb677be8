"""What a gateway wants of a quota, and the requests to the store that keeps it. Each request is atomic there.

A quota has a permit for each VM. Each change of a permit is a new version of its record: with an odd number the
permit is taken, with an even one, or without a version, it is free. A day's money is in portions of equal size, and a
portion that a gateway took belongs to it for that day. Days are days of UTC, counted from 1970.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaLimits:
    """What all gateways may use together.

    Attributes:
        max_vms: VMs that live at a time.
        usd_per_day: money for a day; None: no limit.
        usd_a_portion: about so much money is in a portion. The gateway that begins a day decides for all.
    """

    max_vms: int
    usd_per_day: float | None = None
    usd_a_portion: float = 0.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What a gateway needs.

    Attributes:
        vms: VMs that live.
        usd_by_day: by day, the money that is spent, reserved, or needed for the next block of these VMs.
        another: the day and the money of a VM that is wanted besides; None: none is.
    """

    vms: int = 0
    usd_by_day: Mapping[int, float] = field(default_factory=dict)
    another: tuple[int, float] | None = None

    @property
    def permits(self) -> int:
        """Return how many VMs there would be with the one that is wanted."""
        return self.vms + (self.another is not None)

    def usd(self, permits: int) -> Mapping[int, float]:
        """Return the money that is needed while there are ``permits``: a VM without a permit needs none yet."""
        if self.another is None or permits < self.permits:
            return self.usd_by_day
        day, usd = self.another
        return {**self.usd_by_day, day: self.usd_by_day.get(day, 0.0) + usd}


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a gateway may use.

    Attributes:
        vms: VMs that live at a time.
        usd_by_day: (day, money) of some days; None: without a limit.
        why: why it does not get what it needs; empty if it does.
        spent: whether the money of a day on which it needs more is all taken.
    """

    vms: int = 0
    usd_by_day: tuple[tuple[int, float], ...] | None = ()
    why: str = ""
    spent: bool = False


@dataclass(frozen=True, slots=True)
class VmClaim:
    """The content of a version of a permit.

    Attributes:
        holder: the gateway, the same after a restart.
        writer: this process of it.
        beat: counts its versions, so that no two are equal.
        silent_s: without a newer version for this time, the VM is gone, and another gateway may take the permit; None:
            its VM may live on without its gateway.
    """

    holder: str
    writer: str
    beat: int
    silent_s: float | None


@dataclass(frozen=True, slots=True)
class DayTerms:
    """The money of a day: so many portions of ``usd`` each."""

    portions: int
    usd: float


# ------------------------------------------------------------------------------------------------- requests and answers


@dataclass(frozen=True, slots=True)
class ReadPermits:
    """Which version each permit has; answered by ``PermitsRead``."""


@dataclass(frozen=True, slots=True)
class PermitsRead:
    """The newest version of each permit that has one."""

    newest: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class ReadClaim:
    """The content of a version; answered by ``ClaimRead``."""

    permit: int
    number: int


@dataclass(frozen=True, slots=True)
class ClaimRead:
    """The content; None if the version does not exist any more."""

    claim: VmClaim | None


@dataclass(frozen=True, slots=True)
class WriteClaim:
    """Add a version, whose number must be greater than all others; answered by ``ClaimDone``."""

    permit: int
    number: int
    claim: VmClaim


@dataclass(frozen=True, slots=True)
class ReadDay:
    """Which portions of a day are taken; answered by ``DayRead``."""

    day: int


@dataclass(frozen=True, slots=True)
class AgreeDay:
    """Begin a day with these terms, unless it has others already; answered by ``DayRead``."""

    day: int
    terms: DayTerms


@dataclass(frozen=True, slots=True)
class DayRead:
    """The terms of a day, None if it has none yet, and the portions that are taken."""

    terms: DayTerms | None
    taken: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TakePortion:
    """Take a portion of a day for this writer; answered by ``ClaimDone``."""

    day: int
    portion: int
    writer: str


@dataclass(frozen=True, slots=True)
class ForgetPortions:
    """Delete some objects of a day that is long over; answered by ``ClaimDone``."""

    day: int


@dataclass(frozen=True, slots=True)
class ClaimDone:
    """Whether the request was carried out, now or by an earlier try; else another gateway was faster."""

    done: bool


Request = ReadPermits | ReadClaim | WriteClaim | ReadDay | AgreeDay | TakePortion | ForgetPortions
Answer = PermitsRead | ClaimRead | DayRead | ClaimDone
