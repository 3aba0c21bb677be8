"""A quota that the gateways of a simulation share: the production code over an object store in memory.

Each request takes some time, and some get no answer although they were carried out. So the claims of many gateways are
in the order in which a real store could see them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from gateway.fleet.quota.quotastore import QuotaStore
from infra.objectstore.memory import MemoryStore
from policies.quota.claims import Claimant, QuotaClaims
from policies.quota.requests import Allowance, ClaimDone, Needs, QuotaLimits, Request

_SPREAD = 0.5
"""The standard deviation of the logarithm of a request's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaOptions:
    """A quota, and the store that keeps it.

    Attributes:
        limits: of all gateways together.
        request_s: the median time of a request to the store.
        unanswered: the part of the requests that get no answer.
        lease_s: see ``Claimant``.
        silent_s: see ``Claimant``.
    """

    limits: QuotaLimits
    request_s: float = 0.05
    unanswered: float = 0.0
    lease_s: float = 60.0
    silent_s: float = 180.0


@dataclass(slots=True)
class QuotaFigures:
    """What was seen.

    Attributes:
        requests: by kind.
        waits_s: how long each need for one VM more waited for its permit and its money, if it got both.
        refused: needs that ended without.
        lost: writes that came too late, since another gateway was faster.
    """

    requests: Counter[str] = field(default_factory=Counter)
    waits_s: list[float] = field(default_factory=list)
    refused: int = 0
    lost: int = 0


@dataclass(slots=True)
class _Gateway:
    claims: QuotaClaims
    needs: Needs = field(default_factory=Needs)
    told: Allowance = field(default_factory=Allowance)
    waits_since_s: float | None = None


class SharedQuota:
    """The quota, from outside: what gateways need goes in, what they may use comes out.

    Args:
        options: its options.
        gateways: how many there are.
        seed: of the times of requests, and of the choices of gateways.

    Attributes:
        figures: what was seen so far.
    """

    def __init__(self, options: QuotaOptions, gateways: int, seed: int) -> None:
        self._options = options
        self._store = QuotaStore(MemoryStore(), "simulated")
        self._random = Random(f"quota {seed}")  # noqa: S311 - no secret
        self._gateways = [_Gateway(self._claims(seed, at)) for at in range(gateways)]
        self._agenda: list[tuple[float, int, int, Request, bool]] = []
        self._looking: set[int] = set()
        self._asked = 0
        self.figures = QuotaFigures()

    def _claims(self, seed: int, at: int) -> QuotaClaims:
        name, options = f"gateway {at}", self._options
        by = Claimant(holder=name, writer=name, lease_s=options.lease_s, silent_s=options.silent_s)
        return QuotaClaims(options.limits, by, [seed, at])

    def need(self, gateway: int, needs: Needs, at_s: float) -> None:
        """Note what a gateway needs."""
        known = self._gateways[gateway]
        more = needs.permits > known.needs.permits
        known.needs = needs
        known.claims.need(needs, at_s)
        if not self._lacks(known, at_s):
            known.waits_since_s = None
        elif more:
            known.waits_since_s = at_s
        self._looking.add(gateway)

    def step(self, until_s: float) -> Iterator[tuple[int, float, Allowance]]:
        """Carry out the requests until a time; yield each allowance that changed, with its gateway and time."""
        for gateway in sorted(self._looking):
            self._ask(gateway, until_s)
            yield from self._news(gateway, until_s)
        while self._agenda and self._agenda[0][0] <= until_s:
            at_s, _, gateway, request, answered = heapq.heappop(self._agenda)
            claims, answer = self._gateways[gateway].claims, self._store.perform(request)
            self.figures.requests[type(request).__name__] += 1
            self.figures.lost += isinstance(answer, ClaimDone) and not answer.done
            if answered:
                claims.answered(answer, at_s)
            else:
                claims.failed("the store does not answer", at_s)
            yield from self._news(gateway, at_s)
            self._ask(gateway, at_s)

    def _ask(self, gateway: int, at_s: float) -> None:
        request = self._gateways[gateway].claims.next(at_s)
        if request is None:
            return
        self._asked += 1
        takes_s = self._random.lognormvariate(math.log(self._options.request_s), _SPREAD)
        answered = self._random.random() >= self._options.unanswered
        heapq.heappush(self._agenda, (at_s + takes_s, self._asked, gateway, request, answered))

    def _news(self, gateway: int, at_s: float) -> Iterator[tuple[int, float, Allowance]]:
        known = self._gateways[gateway]
        allowance = known.claims.allowance(at_s)
        if not allowance.vms and not known.needs.permits:
            self._looking.discard(gateway)
        if allowance == known.told:
            return
        known.told = allowance
        if known.waits_since_s is not None and not self._lacks(known, at_s):
            self.figures.waits_s.append(at_s - known.waits_since_s)
            known.waits_since_s = None
        elif known.waits_since_s is not None and allowance.why:
            self.figures.refused += 1
            known.waits_since_s = None
        yield gateway, at_s, allowance

    def _lacks(self, known: _Gateway, at_s: float) -> bool:
        allowance = known.claims.allowance(at_s)
        usd = None if allowance.usd_by_day is None else dict(allowance.usd_by_day)
        needed_usd = known.needs.usd(known.needs.permits)
        poor = usd is not None and any(usd.get(day, 0.0) < usd_a_day for day, usd_a_day in needed_usd.items())
        return allowance.vms < known.needs.permits or poor
