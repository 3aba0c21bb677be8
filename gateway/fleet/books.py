"""The ledger on disk: a new gateway continues with the money that earlier ones spent and reserved."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from infra.clock import Clock
from infra.statefiles import StateError, write_atomically
from infra.threads import run_to_end
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger, LedgerState

_LOG = logging.getLogger(__name__)


class Books:
    """Keeps the ledger in a file, which is replaced as a whole.

    A launch waits until its cost is in the file. A crash in the milliseconds between a renewal and its write is covered
    when the file is opened again: the VM is assumed to have continued until it ended itself.

    Args:
        path: the file.
        look: returns the money spent and reserved now.
        frozen: called with the reason why no more money may be reserved, and with "" once it may be again.
        terms: the price of VMs.
        orphan_after_s: how long a VM continues without a gateway.
        clock: time.

    Attributes:
        restored: the content of the file. Everything that an earlier gateway had reserved counts as spent.
        inherited: the VMs for which an earlier gateway had reserved money when it died.

    Raises:
        StateError: the file cannot be read.
    """

    def __init__(
        self,
        path: Path,
        look: Callable[[], LedgerState],
        frozen: Callable[[str], None],
        terms: BillingTerms,
        *,
        orphan_after_s: float,
        clock: Clock,
    ) -> None:
        self._path = path
        self._look = look
        self._frozen = frozen
        self._why_frozen = ""
        self._turn = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._saved = state = _read(path)
        self.inherited = frozenset(held.name for held in state.reserved)
        ledger = Ledger(Budget(), state)
        given_up_usd = ledger.give_up_reservations(
            clock.wall(), idle_s=orphan_after_s, period_s=terms.period_s, usd_per_hour=terms.usd_per_hour
        )
        self.restored = ledger.state
        if given_up_usd:
            _LOG.warning("%.4f USD that an earlier gateway reserved count as spent", given_up_usd)

    async def save(self) -> None:
        """Return once everything that was booked before the call is on disk.

        Raises:
            OSError: the disk fails; nothing more is reserved until a later call succeeds.
        """
        async with self._turn:
            if not self._changed:
                return
            state = self._look()
            data = msgspec.json.encode(state)
            try:
                await run_to_end(lambda: write_atomically(self._path, data))
            except OSError as error:
                self._freeze(f"the spending cannot be written to disk ({error})")
                raise
            self._saved = state
            self._freeze("")

    @property
    def _changed(self) -> bool:
        return bool(self._why_frozen) or self._look() != self._saved

    def _freeze(self, why: str) -> None:
        if why != self._why_frozen:
            self._why_frozen = why
            self._frozen(why)

    def save_soon(self) -> None:
        """Begin to save changes; after a disk error the next call tries again."""
        if self._changed and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save_or_warn(), name="save the books")

    async def close(self) -> None:
        """Save for the last time; if the disk fails, the reservations stay in the file, which counts them as spent."""
        if self._saving is not None:
            await self._saving
        await self._save_or_warn()

    async def _save_or_warn(self) -> None:
        try:
            await self.save()
        except OSError as error:
            _LOG.warning("%s cannot be written; until it can, no VM is launched or renewed: %s", self._path, error)


def _read(path: Path) -> LedgerState:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LedgerState)
    except FileNotFoundError:
        return LedgerState()
    except msgspec.DecodeError as error:
        raise StateError(
            f"{path} cannot be read ({error}): restore it from a backup, or remove it: the spending of today "
            "counts as nothing"
        ) from error
