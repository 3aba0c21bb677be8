"""What one gateway claims of a quota, and the next request for it. Pure: the caller carries requests out.

The store decides between gateways: it takes each version of a permit, and each portion of a day, from one gateway only.
So together they never use more than the limits, whatever the order of their requests. A request whose outcome is
unknown is repeated before any other one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from policies.quota.permits import VmPermits
from policies.quota.portions import Portions
from policies.quota.requests import (
    AgreeDay,
    Allowance,
    Answer,
    ForgetPortions,
    Needs,
    QuotaLimits,
    ReadDay,
    Request,
    TakePortion,
)

_PAUSE_FIRST_S, _PAUSE_MOST_S = 0.5, 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimant:
    """A gateway with a quota.

    Attributes:
        holder: the same after a restart.
        writer: a random word that no other process has.
        lease_s: how long a permit is held without a renewal.
        silent_s: how long its VM may live after its last renewal; None: without end.
        inherits: whether an earlier process of it may hold permits.
    """

    holder: str
    writer: str
    lease_s: float
    silent_s: float | None
    inherits: bool = False


class QuotaClaims:
    """The claims of one gateway.

    Args:
        limits: of the quota.
        by: the gateway.
        seed: of its choices, other than that of other gateways.
        spent_by_day: what an earlier process spent and reserved.
    """

    def __init__(
        self,
        limits: QuotaLimits,
        by: Claimant,
        seed: int | Sequence[int],
        spent_by_day: Mapping[int, float] | None = None,
    ) -> None:
        random = np.random.default_rng(seed)
        self._limits = limits
        self._permits = VmPermits(
            limits.max_vms,
            holder=by.holder,
            writer=by.writer,
            lease_s=by.lease_s,
            silent_s=by.silent_s,
            random=random,
            inherits=by.inherits,
        )
        self._portions = None
        if limits.usd_per_day is not None:
            self._portions = Portions(limits, writer=by.writer, random=random)
            self._portions.restore(spent_by_day or {})
        self._needs = Needs()
        self._open: tuple[Request, float] | None = None
        self._unsure: tuple[Request, float] | None = None
        self._pause_s, self._paused_until_s = _PAUSE_FIRST_S, 0.0
        self._trouble = ""

    @property
    def settled(self) -> bool:
        """Return whether it is known what an earlier process of this gateway holds."""
        return self._permits.inherited

    def allowance(self, now_s: float) -> Allowance:
        """Return what the gateway may use at ``now_s``."""
        spent = self._portions is not None and self._portions.spent
        why = self._trouble
        if not why and self._permits.full:
            why = f"all {self._limits.max_vms} VMs are in use"
        elif not why and spent:
            why = f"the {self._limits.usd_per_day:g} USD of the day are spent"
        usd_by_day = None if self._portions is None else tuple(sorted(self._portions.usd_by_day.items()))
        return Allowance(self._permits.held(now_s), usd_by_day, why, spent)

    def need(self, needs: Needs, now_s: float) -> None:
        """Note what the gateway needs."""
        self._needs = needs
        self._permits.need(needs.permits, now_s)

    def release(self) -> None:
        """Free all permits at once: the gateway ends, and needs nothing more."""
        self._permits.release()

    def next(self, now_s: float) -> Request | None:
        """Return the request to carry out now; None if there is none, or one is under way."""
        if self._open is not None or now_s < self._paused_until_s:
            return None
        if self._unsure is not None:
            # Others have seen its first try, so a lease counts from then.
            self._open = self._unsure
            return self._unsure[0]
        request: Request | None = self._permits.next(now_s)
        if request is None and self._portions is not None:
            self._portions.need(self._needs.usd(self._permits.held(now_s)))
            request = self._portions.next()
        self._open = None if request is None else (request, now_s)
        return request

    def answered(self, answer: Answer, now_s: float) -> None:
        """Note the answer to the request that is under way."""
        request, asked_s = self._taken()
        self._unsure, self._trouble, self._pause_s = None, "", _PAUSE_FIRST_S
        if isinstance(request, ReadDay | AgreeDay | TakePortion | ForgetPortions):
            assert self._portions is not None, "it asked"
            self._portions.take(request, answer)
        else:
            self._permits.take(request, answer, asked_s, now_s)

    def failed(self, why: str, now_s: float) -> None:
        """Note that the outcome of the request that is under way is unknown; it is repeated after a pause."""
        self._unsure = self._taken()
        self._trouble = why
        self._paused_until_s = now_s + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_MOST_S)

    def _taken(self) -> tuple[Request, float]:
        if self._open is None:
            raise ValueError("no request is under way")
        taken, self._open = self._open, None
        return taken
