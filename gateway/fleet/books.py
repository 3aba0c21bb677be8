"""The ledger on disk: what was spent and reserved outlives the gateway."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from infra.clock import Clock
from infra.statefiles import StateError, write_atomically
from infra.threads import run_to_end
from policies.money.billing import BillingTerms
from policies.money.ledger import Ledger, LedgerState

_LOG = logging.getLogger(__name__)


class Books:
    """Keeps a ledger in a file, replaced as a whole.

    A launch waits until what it costs is in the file. A crash between a renewal and its being written, some
    milliseconds, is covered when the file is opened again: the VM is taken to have gone on until it ended itself.

    Args:
        path: the file.
        ledger: a new one; it is given what the file holds.
        terms: what VMs cost.
        orphan_after_s: how long a VM goes on without a gateway.
        clock: time.

    Attributes:
        inherited: the VMs for which an earlier gateway had reserved money when it died.

    Raises:
        StateError: the file cannot be read.
    """

    def __init__(self, path: Path, ledger: Ledger, terms: BillingTerms, *, orphan_after_s: float, clock: Clock) -> None:
        self._path = path
        self._ledger = ledger
        self._saved_changes = ledger.changes
        self._turn = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        state = _read(path)
        self.inherited = frozenset(held.name for held in state.reserved)
        ledger.restore(state)
        given_up_usd = ledger.give_up_reservations(
            clock.wall(), idle_s=orphan_after_s, period_s=terms.period_s, usd_per_hour=terms.usd_per_hour
        )
        if given_up_usd:
            _LOG.warning("%.4f USD that an earlier gateway had reserved count as spent", given_up_usd)

    async def save(self) -> None:
        """Return once all that was booked before the call is on disk.

        Raises:
            OSError: the disk fails; nothing more is reserved until a later call succeeds.
        """
        async with self._turn:
            changes = self._ledger.changes
            if changes == self._saved_changes:
                return
            data = msgspec.json.encode(self._ledger.state)
            try:
                await run_to_end(lambda: write_atomically(self._path, data))
            except OSError as error:
                self._ledger.frozen = f"what is spent cannot be written down ({error})"
                raise
            self._saved_changes = changes
            self._ledger.frozen = ""

    def save_soon(self) -> None:
        """Begin to save what has changed; a disk that fails is tried again at the next call."""
        if self._ledger.changes != self._saved_changes and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save_or_warn(), name="save the books")

    async def close(self) -> None:
        """Save for the last time; a disk that fails leaves what is reserved in the file, which counts as spent."""
        if self._saving is not None:
            await self._saving
        await self._save_or_warn()

    async def _save_or_warn(self) -> None:
        try:
            await self.save()
        except OSError as error:
            _LOG.warning("%s cannot be written: no VM is started or kept until it can (%s)", self._path, error)


def _read(path: Path) -> LedgerState:
    try:
        return msgspec.json.decode(path.read_bytes(), type=LedgerState)
    except FileNotFoundError:
        return LedgerState()
    except msgspec.DecodeError as error:
        raise StateError(
            f"{path} cannot be read ({error}): restore it from a backup, or remove it, and what was spent today "
            "counts as nothing"
        ) from error
