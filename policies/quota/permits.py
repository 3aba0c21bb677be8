"""The permits for VMs in a quota: which of them this gateway holds, and which it may take."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policies.quota.requests import (
    Answer,
    ClaimDone,
    ClaimRead,
    PermitsRead,
    ReadClaim,
    ReadPermits,
    VmClaim,
    WriteClaim,
)

_RENEW_PART = 1 / 3
_KEEP_S = 10.0
"""A permit that is not needed is held for this time: the gateway may want a VM again soon."""
_ADOPT_S = 120.0
"""One of an earlier process is held for this time: its VM is going to be adopted."""
_AGAIN_S = 5.0
"""How long to wait before the permits are read again, when all were taken."""


@dataclass(slots=True)
class _Held:
    number: int
    until_s: float
    renew_s: float


@dataclass(slots=True)
class _Watched:
    """A permit of another gateway: the version that it has had since a time, and for how long it may be silent."""

    number: int
    since_s: float
    read: bool = False
    silent_s: float | None = None


class VmPermits:
    """The permits of a quota, from one gateway's view. Pure; one request is open at a time.

    Clocks of different machines are not compared. A holder counts its lease from before its write. Another gateway
    takes the permit only after it has seen it unchanged, on its own clock, for as long as the VM may live then.

    Args:
        count: of permits: the VMs of the quota.
        holder: this gateway, the same after a restart.
        writer: a random word that no other process has.
        lease_s: how long a permit is held without a renewal.
        silent_s: see ``VmClaim``.
        random: for the choice of permits, and of pauses.
        inherits: whether an earlier process of this gateway may hold permits.
    """

    def __init__(
        self,
        count: int,
        *,
        holder: str,
        writer: str,
        lease_s: float,
        silent_s: float | None,
        random: np.random.Generator,
        inherits: bool,
    ) -> None:
        self._count = count
        self._holder = holder
        self._writer = writer
        self._lease_s = lease_s
        self._silent_s = silent_s
        self._random = random
        self._held: dict[int, _Held] = {}
        self._needed = 0
        self._surplus_since_s: float | None = None
        self._newest: dict[int, int] | None = None
        self._watched: dict[int, _Watched] = {}
        self._to_inherit: list[int] | None = None if inherits else []
        self._again_s = self._keep_until_s = -math.inf
        self._beat = 0
        self.full = False

    # ------------------------------------------------------------------------------------------------------- looking

    def held(self, now_s: float) -> int:
        """Return for how many VMs there are permits at ``now_s``."""
        return sum(now_s < held.until_s for held in self._held.values())

    @property
    def inherited(self) -> bool:
        """Return whether the permits of an earlier process are known, and renewed."""
        return self._to_inherit == [] and all(held.until_s > -math.inf for held in self._held.values())

    # ------------------------------------------------------------------------------------------------------ requests

    def need(self, count: int, now_s: float) -> None:
        """Note how many permits are needed."""
        self._needed = count
        if len(self._held) <= count:
            self._surplus_since_s = None
        elif self._surplus_since_s is None:
            self._surplus_since_s = now_s
        if self.held(now_s) >= count:
            self.full = False

    def release(self) -> None:
        """Free all permits at once: the gateway ends."""
        self._needed, self._surplus_since_s, self._keep_until_s = 0, -math.inf, -math.inf

    def next(self, now_s: float) -> ReadPermits | ReadClaim | WriteClaim | None:
        """Return the next request; None: there is nothing to do now."""
        return self._inherit() or self._renew(now_s) or self._free(now_s) or self._take(now_s)

    def _inherit(self) -> ReadPermits | ReadClaim | None:
        if self._to_inherit is None:
            return ReadPermits()
        if not self._to_inherit or self._newest is None:
            return None
        return ReadClaim(self._to_inherit[-1], self._newest[self._to_inherit[-1]])

    def _renew(self, now_s: float) -> WriteClaim | None:
        due = [permit for permit, held in self._held.items() if held.renew_s <= now_s]
        return self._claim(due[0], self._held[due[0]].number + 2) if due else None

    def _free(self, now_s: float) -> WriteClaim | None:
        if now_s < self._keep_until_s or self._surplus_since_s is None or len(self._held) <= self._needed:
            return None
        if now_s - self._surplus_since_s < _KEEP_S:
            return None
        permit = next(reversed(self._held))
        return self._claim(permit, self._held[permit].number + 1)

    def _take(self, now_s: float) -> ReadPermits | ReadClaim | WriteClaim | None:
        if len(self._held) >= self._needed or now_s < self._again_s:
            return None
        if self._newest is None:
            return ReadPermits()
        free = [
            permit for permit in range(self._count) if permit not in self._held and self._newest.get(permit, 0) % 2 == 0
        ]
        if free:
            permit = free[int(self._random.integers(len(free)))]
            return self._claim(permit, self._newest.get(permit, 0) + 1)
        if (silent := self._silent(now_s)) is not None:
            return silent
        self.full = True
        self._newest, self._again_s = None, now_s + _AGAIN_S * float(self._random.uniform(0.5, 1.5))
        return None

    def _silent(self, now_s: float) -> ReadClaim | WriteClaim | None:
        """Return what to do about a permit whose holder has not renewed it for long."""
        for permit, seen in self._watched.items():
            unchanged_s = now_s - seen.since_s
            if not seen.read and unchanged_s > self._lease_s:
                return ReadClaim(permit, seen.number)
            if seen.read and seen.silent_s is not None and unchanged_s > seen.silent_s:
                return self._claim(permit, seen.number + 2)
        return None

    def _claim(self, permit: int, number: int) -> WriteClaim:
        self._beat += 1
        return WriteClaim(permit, number, VmClaim(self._holder, self._writer, self._beat, self._silent_s))

    # ------------------------------------------------------------------------------------------------------- answers

    def take(self, request: ReadPermits | ReadClaim | WriteClaim, answer: Answer, asked_s: float, now_s: float) -> None:
        """Note the answer to a request that was made at ``asked_s``."""
        match request, answer:
            case ReadPermits(), PermitsRead():
                self._permits_read(answer, now_s)
            case ReadClaim(), ClaimRead():
                self._claim_read(request, answer.claim, now_s)
            case WriteClaim(), ClaimDone():
                self._written(request, asked_s, done=answer.done)
            case _:
                raise ValueError(f"{answer!r} does not answer {request!r}")

    def _permits_read(self, read: PermitsRead, now_s: float) -> None:
        self._newest = dict(read.newest)
        taken = {permit: number for permit, number in self._newest.items() if number % 2 and permit not in self._held}
        before = self._watched
        self._watched = {
            permit: before[permit] if permit in before and before[permit].number == number else _Watched(number, now_s)
            for permit, number in taken.items()
        }
        if self._to_inherit is None:
            self._to_inherit = list(taken)

    def _claim_read(self, request: ReadClaim, claim: VmClaim | None, now_s: float) -> None:
        if self._to_inherit:
            self._to_inherit.pop()
            if claim is not None and claim.holder == self._holder:
                # Held once this process has renewed it.
                self._held[request.permit] = _Held(request.number, -math.inf, -math.inf)
                self._keep_until_s = now_s + _ADOPT_S
            return
        seen = self._watched.get(request.permit)
        if seen is not None and seen.number == request.number:
            seen.read, seen.silent_s = True, None if claim is None else claim.silent_s

    def _written(self, request: WriteClaim, asked_s: float, *, done: bool) -> None:
        permit, number = request.permit, request.number
        if self._newest is not None and done:
            self._newest[permit] = number
        elif not done:
            self._newest = None  # others take some at the same time: what was read is old
        if not done or number % 2 == 0:
            self._held.pop(permit, None)
            self._watched.pop(permit, None)
            if len(self._held) <= self._needed:
                self._surplus_since_s = None
            return
        self._watched.pop(permit, None)
        self._held[permit] = _Held(number, asked_s + self._lease_s, asked_s + self._lease_s * _RENEW_PART)
        if len(self._held) >= self._needed:
            self.full = False
            self._newest = None  # old by the next time
