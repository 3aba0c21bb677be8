"""Claims a gateway's part of its quota, and tells what is granted."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Final

from gateway.config.models import Config
from gateway.config.settings import unattended_s
from gateway.connectors.objectstores import make_store
from gateway.fleet.quota.quotastore import QuotaStore
from infra.clock import Clock
from infra.objectstore.base import StoreRefusedError, StoreUnavailableError
from infra.statefiles import StateError
from infra.threads import run_to_end
from infra.together import end_tasks
from policies.money.ledger import Budget, Ledger, LedgerState, day_of
from policies.quota.claims import Claimant, QuotaClaims
from policies.quota.requests import Allowance, Needs, QuotaLimits, Request

_LOG = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
"""How often to look whether a claim is due: for a renewal, or after a refusal."""
_SETTLE_S: Final = 10.0
"""How long a start waits until it is known which permits an earlier process holds."""
_RELEASE_S: Final = 5.0
_STORE_S: Final = 2.0
_LEASE_S: Final = 60.0
_MARGIN_S: Final = 30.0


class QuotaKeeper:
    """Carries out the requests of ``QuotaClaims``, one after the other. Without a quota it does nothing.

    Args:
        config: the gateway's.
        holder: the same after a restart, and for all gateways of a fleet.
        granted: called with what may be used, each time that changes.
        clock: time.
    """

    def __init__(self, config: Config, holder: str, granted: Callable[[Allowance], None], clock: Clock) -> None:
        self._config = config
        self._holder = holder
        self._granted = granted
        self._clock = clock
        self._claims: QuotaClaims | None = None
        self._told = Allowance()
        self._settled, self._wanted, self._idle = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._ending = False
        self._running: asyncio.Task[None] | None = None

    async def begin(self, *, inherits: bool, before: LedgerState, now: LedgerState) -> None:
        """Begin to claim; return once the VMs of an earlier process may be adopted, or after 10 s.

        Args:
            inherits: whether an earlier process of this gateway may hold permits.
            before: what it spent and reserved.
            now: the same, with what its VMs have cost since.

        Raises:
            StateError: the object store cannot be used.
        """
        quota, place = self._config.gateway.quota, self._config.gateway.object_store
        if quota is None or place is None:
            return
        try:
            store = await asyncio.to_thread(lambda: make_store(place, wait_s=_STORE_S))
        except (StoreRefusedError, StoreUnavailableError) as error:
            raise StateError(f"gateway.object_store: {error}") from error
        terms, writer = self._config.cloud.terms, secrets.token_hex(8)
        limits = QuotaLimits(
            max_vms=quota.max_vms,
            usd_per_day=quota.usd_per_day,
            usd_a_portion=terms.time_usd(terms.first_block_s),
        )
        by = Claimant(
            holder=self._holder, writer=writer, lease_s=_LEASE_S, silent_s=self._silent_s(), inherits=inherits
        )
        self._claims = claims = QuotaClaims(limits, by, int(writer, 16), _by_day(before))
        self._running = asyncio.create_task(self._run(claims, QuotaStore(store, quota.name)), name="claim the quota")
        try:
            async with asyncio.timeout(_SETTLE_S):
                await self._settled.wait()
                await self._claim_for_adoption(claims, now)
        except TimeoutError:
            _LOG.warning("quota %s does not answer: VMs of an earlier process are terminated", quota.name)

    async def _claim_for_adoption(self, claims: QuotaClaims, spent: LedgerState) -> None:
        """Claim two blocks for each VM of an earlier process: the one that has begun, and the next one."""
        permits = claims.allowance(self._clock.now()).vms
        if not permits:
            return
        terms, today = self._config.cloud.terms, day_of(self._clock.wall())
        usd_by_day = _by_day(spent)
        usd_by_day[today] = usd_by_day.get(today, 0.0) + 2 * permits * terms.time_usd(terms.first_block_s)
        self._idle.clear()
        self.need(Needs(permits, usd_by_day))
        await self._idle.wait()

    def _silent_s(self) -> float | None:
        """Return how long a VM may live after the last renewal of its permit."""
        alone_s = unattended_s(self._config)
        if alone_s == float("inf"):
            return None
        return _LEASE_S + max(alone_s, self._config.cloud.terms.first_block_s) + _MARGIN_S

    async def end(self) -> None:
        """Free the permits, and stop; if that fails, others get them once they were silent for long enough."""
        if self._running is None or self._claims is None:
            return
        self._ending = True
        self._claims.release()
        self._wanted.set()
        await asyncio.wait([self._running], timeout=_RELEASE_S)
        await end_tasks(self._running)

    @property
    def failure(self) -> BaseException | None:
        """A bug of ours that ended it."""
        running = self._running
        return None if running is None or not running.done() or running.cancelled() else running.exception()

    def need(self, needs: Needs) -> None:
        """Note what is needed; it is claimed at once."""
        if self._claims is not None:
            self._claims.need(needs, self._clock.now())
            self._wanted.set()

    async def _run(self, claims: QuotaClaims, store: QuotaStore) -> None:
        while True:
            self._wanted.clear()
            request = claims.next(self._clock.now())
            if request is not None:
                await self._carry_out(request, claims, store)
            self._tell(claims)
            if request is not None:
                continue
            if self._ending:
                return
            self._idle.set()
            await self._pause()

    async def _carry_out(self, request: Request, claims: QuotaClaims, store: QuotaStore) -> None:
        try:
            answer = await run_to_end(lambda: store.perform(request))
        except (StoreUnavailableError, StoreRefusedError) as error:
            _LOG.warning("the quota cannot be read or written: %s", error)
            claims.failed(str(error), self._clock.now())
        else:
            claims.answered(answer, self._clock.now())

    def _tell(self, claims: QuotaClaims) -> None:
        if claims.settled:
            self._settled.set()
        allowance = claims.allowance(self._clock.now())
        if allowance != self._told and not self._ending:
            self._told = allowance
            self._granted(allowance)

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(_LOOK_S):
                await self._wanted.wait()
        except TimeoutError:
            return


def _by_day(state: LedgerState) -> dict[int, float]:
    """Return what was spent and reserved for each day."""
    return Ledger(Budget(), state).committed_by_day
