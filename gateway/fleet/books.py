"""The ledger on disk, and for a fleet in its object store: a new gateway continues with what earlier ones spent."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from infra.clock import Clock
from infra.objectstore.base import ObjectStore, StoreRefusedError, StoreUnavailableError
from infra.objectstore.versions import OvertakenError, Versions
from infra.retries import Retries
from infra.statefiles import StateError, write_atomically
from infra.threads import run_to_end
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger, LedgerState

_LOG = logging.getLogger(__name__)
_READS: Final = Retries(first_s=0.5, most_s=4.0, tries=5)


class _Entry(msgspec.Struct, frozen=True):
    """A version of a fleet's books; ``writer`` and ``number`` make it differ from all others."""

    writer: str
    number: int
    state: LedgerState


class FleetBooks:
    """The books of a fleet, in its object store. The methods block.

    They are written when a reservation begins or ends, and at an orderly end. What is spent in between was reserved
    before, so the next owner never takes too little for spent.

    Args:
        store: the fleet's object store.
        fleet: its name.
    """

    def __init__(self, store: ObjectStore, fleet: str) -> None:
        self._what = f"the books of fleet {fleet} in {store}"
        self._versions = Versions(store, f"books/{fleet}")
        self._writer = secrets.token_hex(8)
        self._number = 0

    def read(self) -> LedgerState | None:
        """Return what earlier owners spent and reserved; None if there was none.

        Raises:
            StoreUnavailableError: the store does not answer now.
            StateError: the store refuses, or the books are damaged.
        """
        try:
            latest = self._versions.latest()
            if latest is None:
                return None
            self._number = latest.number
            return msgspec.json.decode(latest.data, type=_Entry).state
        except StoreRefusedError as error:
            raise StateError(f"{self._what}: {error}") from error
        except msgspec.DecodeError as error:
            raise StateError(f"{self._what} cannot be read ({error}): restore version {self._number}") from error

    def write(self, state: LedgerState) -> None:
        """Replace them.

        Raises:
            OSError: the store does not take them, or another gateway has written since.
        """
        number = self._number + 1
        try:
            self._versions.add(number, msgspec.json.encode(_Entry(self._writer, number, state)))
            self._number = number
            self._versions.prune(number)
        except (OvertakenError, StoreUnavailableError, StoreRefusedError) as error:
            raise OSError(f"{self._what}: {error}") from error


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
        fleet: the fleet's books, if the gateway belongs to one; ``join`` reads them.

    Attributes:
        restored: what was spent. Everything that an earlier gateway had reserved counts as spent.
        before: what was spent and reserved when the earlier gateway ended.
        inherited: the VMs for which it had reserved money then.

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
        fleet: FleetBooks | None = None,
    ) -> None:
        self._path = path
        self._terms = terms
        self._orphan_after_s = orphan_after_s
        self._clock = clock
        self._fleet = fleet
        self._joined = fleet is None
        self._look = look
        self._frozen = frozen
        self._why_frozen = ""
        self._turn = asyncio.Lock()
        self._saving: asyncio.Task[None] | None = None
        self._local = self._saved = self.restored = _read(path)
        self.before = self._local
        self.inherited: frozenset[str] = frozenset()
        if fleet is None:
            self._continue(self._local)

    async def join(self) -> None:
        """Continue with the fleet's books, once the gateway is the owner; the file counts only if there are none.

        Raises:
            StateError: they cannot be read.
        """
        if self._fleet is None:
            return
        fleet, self._joined = self._fleet, True
        try:
            state = await _READS.retry(lambda: run_to_end(fleet.read), self._clock, StoreUnavailableError)
        except StoreUnavailableError as error:
            raise StateError(f"the fleet's spending cannot be read: {error}") from error
        self._continue(self._local if state is None else state)

    def _continue(self, state: LedgerState) -> None:
        """Continue with what was booked before; warn of reservations that nobody settled."""
        self._saved = self.before = state
        self.inherited = frozenset(held.name for held in state.reserved)
        ledger = Ledger(Budget(), state)
        terms = self._terms
        given_up_usd = ledger.give_up_reservations(
            self._clock.wall(),
            idle_s=self._orphan_after_s,
            period_s=terms.period_s,
            usd_per_hour=terms.usd_per_hour,
        )
        self.restored = ledger.state
        if given_up_usd:
            _LOG.warning("%.4f USD that an earlier gateway reserved count as spent", given_up_usd)

    async def save(self) -> None:
        """Return once everything that was booked before the call is on disk, and reservations are in the fleet's books.

        Raises:
            OSError: the disk or the store fails; nothing more is reserved until a later call succeeds.
        """
        async with self._turn:
            if self._changed:
                await self._write(self._look())

    async def _write(self, state: LedgerState) -> None:
        data, fleet = msgspec.json.encode(state), self._fleet
        try:
            await run_to_end(lambda: write_atomically(self._path, data))
            if fleet is not None and state.reserved != self._saved.reserved:
                await run_to_end(lambda: fleet.write(state))
        except OSError as error:
            self._freeze(f"the spending cannot be written ({error})")
            raise
        self._saved = state
        self._freeze("")

    @property
    def _changed(self) -> bool:
        # A gateway that waits for its fleet spends nothing, and must not write the fleet's books.
        return self._joined and (bool(self._why_frozen) or self._look() != self._saved)

    def _freeze(self, why: str) -> None:
        if why != self._why_frozen:
            self._why_frozen = why
            self._frozen(why)

    def save_soon(self) -> None:
        """Begin to save changes; after a disk error the next call tries again."""
        if self._changed and (self._saving is None or self._saving.done()):
            self._saving = asyncio.create_task(self._save_or_warn(), name="save the books")

    async def close(self) -> None:
        """Save for the last time; if that fails, the reservations that were saved count as spent."""
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
