"""Decides when a stateful query moves, and copies its checkpoint ahead of the move and while it is away.

A move is a restart in another place: the query is stopped, the rest of its checkpoint is copied, and it is opened again
there. A part of a divided query goes on meanwhile, see `gateway.query.moving.partmover`. The run log holds every run
since the last checkpoint that is at home, and the ends of the micro-batches since then are on disk. So the query can
always continue at home, with the same micro-batches, whatever happens to the VM.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from engines.streaming import checkpoints
from engines.streaming.checkpoints import CheckpointError
from engines.streaming.statefiles import StateCopy, StateListing
from gateway.hosts.connection import Connection
from gateway.query.moving.ahead import CopiedAhead
from gateway.query.moving.pause import PauseEstimate
from gateway.query.moving.transfer import StateTransfer, TransferError
from infra.clock import Clock
from infra.link.channel import LinkLost
from infra.messages import state_folder
from infra.threads import run_to_end
from infra.together import end_tasks
from policies.signals import HOME
from policies.switching.placing import move_is_due, next_place, target_place

_LOG = logging.getLogger(__name__)

COPY_S: Final = 10.0
"""While a query is away, its checkpoint is copied home this often: after the loss of the VM so much is repeated."""
COPY_LATE_S: Final = 60.0
"""If no checkpoint has come home for so long, the query returns."""
_LOOK_S: Final = 0.2
_SOON_S: Final = 0.05
ROUNDS_MOST: Final = 5
REST_SHORT_S: Final = 0.5
"""Copying ahead is repeated until a round takes no longer: so much remains to be copied while events are held."""
_REACHED_S: Final = 5.0
_RETRY_S: Final = 2.0
TROUBLE = (TransferError, CheckpointError, LinkLost, TimeoutError, OSError)
"""What may go wrong when state is copied; the query then stays, or continues at home."""


class NotNowError(Exception):
    """A part cannot move now, and may be able to do so later; the message says why."""


class Mover:
    """Where one stateful query is and is to be.

    Args:
        name: the query's.
        clock: time.
        pause_most_s: how long the query's events may be held for a move.
        at_home: returns the folder of its checkpoints at home.
        on_failed: called with (vm, reason) when it cannot move to a VM.
        on_copied: called with the seq from which on the runs are still needed, when a checkpoint has come home.
        go: moves a part of a divided query while the part is open; None for a query that is not divided.

    Attributes:
        place: the lane where it is.
        vms: the VMs on which it could be opened, by name.
        heading: where a part is being opened, beside its place; empty if it is not moving.
        stuck: whether a part that is to return could not do so while it was open.
        home_seq: where the query would continue with its checkpoint at home, while it is away.
        moves: how often it has moved, in both directions.
        pause_s: how long events were held at the last move; None before the first.
        moved_bytes: how many bytes of state were copied for the last move, also ahead of it and while it was away.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        pause_most_s: float,
        at_home: Callable[[], Path],
        on_failed: Callable[[str, str], None],
        on_copied: Callable[[int], Awaitable[None]],
        go: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._name = name
        self._clock = clock
        self._pause_most_s = pause_most_s
        self._pause = PauseEstimate(clock, copies_while_held=go is None)
        self._at_home = at_home
        self._on_failed = on_failed
        self._on_copied = on_copied
        self._go = go
        self._shares: Mapping[str, float] = {HOME: 1.0}
        self._draining: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._copy = ""
        self._transfer: StateTransfer | None = None
        self._listing: StateListing | None = None
        self._ahead = CopiedAhead(clock)
        self.place = HOME
        self.heading = ""
        self.stuck = False
        self.vms: dict[str, Connection] = {}
        self.home_seq = 0
        self.moves = 0
        self.pause_s: float | None = None
        self.moved_bytes = 0

    # -------------------------------------------------------------------------------------------------- where it goes

    def follow(self, shares: Mapping[str, float]) -> None:
        """Use the scheduler's shares from now on: the query goes to the VM with the largest one, as a whole."""
        self._shares = dict(shares)

    def drain(self, vm: str) -> None:
        """Leave a VM, or do not move there."""
        self._draining.add(vm)

    def lose(self, vm: str) -> None:
        """Note that a VM is gone."""
        self.vms.pop(vm, None)
        self._draining.discard(vm)

    def usable(self, vm: str) -> bool:
        """Whether the query could be on a VM: it is linked, and does not drain."""
        return vm in self._present - self._draining

    @property
    def is_lost(self) -> bool:
        """Whether the VM where the query is is gone."""
        return self.place != HOME and self.place not in self._present

    @property
    def leaves(self) -> bool:
        """Whether it is to be elsewhere, or where it is is gone."""
        return self.is_lost or self.target != self.place

    @property
    def present_at(self) -> Connection | None:
        """The VM where the query is; None if it is at home, or the VM is gone."""
        return self.vms.get(self.place) if self.place in self._present else None

    @property
    def _present(self) -> set[str]:
        return {name for name, vm in self.vms.items() if vm.alive}

    @property
    def target(self) -> str:
        """Where the query is to be."""
        return target_place(self.place, self._shares, self._present - self._draining)

    @property
    def next_place(self) -> str:
        """Where it goes next on its way to ``target``."""
        return next_place(self.place, self.target)

    @property
    def due(self) -> bool:
        """Whether it is time to move: what could be copied ahead is copied, or the VM is gone."""
        return move_is_due(
            self.place,
            self.target,
            self._present,
            copied_ahead=self._ahead.is_for(self.target),
            pause_s=self.pause_expected_s,
            pause_most_s=self._pause_most_s,
        )

    @property
    def pause_expected_s(self) -> float:
        """How long the query's events would be held if it moved now."""
        return self._pause.expected_s

    @property
    def checkpoint_dir(self) -> str:
        """Where the VM has the copy that was sent last."""
        return state_folder(self._name, self._copy)

    # ------------------------------------------------------------------------------------------------- copying ahead

    def begin(self) -> asyncio.Task[None]:
        """Copy in the background from now on, in the task that is returned; the query is open at ``place``."""
        self.stuck = False
        self._task = asyncio.create_task(self._run(), name=f"state of {self._name}")
        return self._task

    async def rest(self) -> None:
        """Copy nothing in the background."""
        await end_tasks(self._task)
        self._task = None

    async def _run(self) -> None:
        copied_s = tried_s = self._clock.now()
        while True:
            target, now_s = self.target, self._clock.now()
            if target == self.place:
                self._ahead.forget()
                if self.place != HOME and now_s - tried_s >= COPY_S:
                    copied = await self._try_to_copy_home()
                    tried_s = self._clock.now()
                    copied_s = tried_s if copied else copied_s
                    if tried_s - copied_s >= COPY_LATE_S:
                        self._come_home(tried_s - copied_s)
            elif not self._ahead.is_for(target):
                await self._copy_ahead(target)
            elif self._go is not None and self.due and not self.stuck:
                await self._go()
                copied_s = tried_s = self._clock.now()
            await self._clock.sleep_until(self._clock.now() + _LOOK_S)

    def _come_home(self, late_s: float) -> None:
        """Leave the VM: with each run since the last copy, the run log and the work after a loss of the VM grow."""
        _LOG.warning("query %s leaves %s: for %.0f s no checkpoint came from there", self._name, self.place, late_s)
        self.drain(self.place)

    async def _copy_ahead(self, target: str) -> None:
        # What was copied elsewhere is not what the rest will be added to, even if this does not come to its end.
        self._ahead.forget()
        if self.place != HOME:
            await self._try_to_copy_home()
        else:
            try:
                await self._send_ahead(target)
            except TROUBLE as error:
                self.refuse(target, error)
                return
        self._ahead.done(target)

    async def _send_ahead(self, vm: str) -> None:
        start = await run_to_end(lambda: checkpoints.newest(self._at_home()))
        if start is None:
            raise CheckpointError("there is no checkpoint at home yet")
        self._copy, self._listing = secrets.token_hex(8), StateListing(start)
        self._transfer = StateTransfer(self.vms[vm], self._name, self._copy)
        for _ in range(ROUNDS_MOST):
            begun_s = self._clock.now()
            await self._transfer.push(await run_to_end(self._listing.files), start)
            if self._pause.copied(begun_s) <= REST_SHORT_S:
                break

    def refuse(self, vm: str, error: Exception) -> None:
        """Note that it cannot move to a VM, which is not tried again."""
        _LOG.warning("query %s does not move to %s: %s", self._name, vm, error)
        self.lose(vm)
        self._on_failed(vm, f"its state cannot be moved there: {error}")

    async def _try_to_copy_home(self) -> bool:
        try:
            await self._copy_home()
        except TROUBLE as error:
            _LOG.warning("query %s: its checkpoint was not copied from %s: %s", self._name, self.place, error)
            return False
        return True

    async def _copy_home(self) -> None:
        assert self._transfer is not None, "a query that is away was sent there"
        base = self._at_home()
        copy = StateCopy(base)
        files = await self._transfer.pull(copy)
        start = await run_to_end(lambda: copy.install(files))
        progress = await run_to_end(lambda: checkpoints.progress_of(start))
        self.home_seq = progress.resume_seq
        await self._on_copied(self.home_seq)

    # -------------------------------------------------------------------------------------------------------- moving

    async def send_rest(self) -> None:
        """Send what has changed since, and make it the checkpoint on the VM; the query is open nowhere.

        Raises:
            TransferError: the VM cannot store it.
            CheckpointError: the checkpoint cannot be read.
            LinkLost: the link to the VM was lost.
            TimeoutError: the VM did not answer in time.
        """
        assert self._transfer is not None, "it was copied ahead"
        assert self._listing is not None, "it was copied ahead"
        begun_s = self._clock.now()
        start = await run_to_end(lambda: checkpoints.newest(self._at_home()))
        assert start is not None, "it was copied ahead"
        if start != self._listing.start:  # it was opened again meanwhile
            self._listing = StateListing(start)
        files = await run_to_end(self._listing.files)
        self.home_seq = (await run_to_end(lambda: checkpoints.progress_of(start))).resume_seq
        await self._transfer.push(files, start)
        await self._transfer.install(files)
        self._pause.copied(begun_s)

    async def send_while_open(self, from_seq: int) -> None:
        """Do the same while it is open at home, once its checkpoint there has everything before ``from_seq``.

        Raises:
            NotNowError: the checkpoint does not get that far, because the sink takes no results.
            TransferError: as ``send_rest``.
            CheckpointError: as ``send_rest``.
            LinkLost: as ``send_rest``.
            TimeoutError: as ``send_rest``.
        """
        ends_s = self._clock.now() + _REACHED_S
        while await run_to_end(self._seq_at_home) < from_seq:
            if self._clock.now() > ends_s:
                raise NotNowError(f"its checkpoint at home ends before seq {from_seq}")
            await self._clock.sleep_until(self._clock.now() + _SOON_S)
        await self.send_rest()

    async def has_all_before(self, seq: int) -> bool:
        """Whether its checkpoint at home has everything before ``seq``."""
        return await run_to_end(self._seq_at_home) >= seq

    def _seq_at_home(self) -> int:
        start = checkpoints.newest(self._at_home())
        return 0 if start is None else checkpoints.progress_of(start).resume_seq

    async def fetch_while_open(self, from_seq: int) -> None:
        """Copy the checkpoint home while it is open on the VM, until the copy has everything before ``from_seq``.

        Raises:
            NotNowError: the checkpoint does not get that far, because the sink takes no results.
            TransferError: the VM cannot send it.
            CheckpointError: what it sends is no checkpoint.
            LinkLost: the VM is lost.
            TimeoutError: it does not answer.
        """
        ends_s = self._clock.now() + _REACHED_S
        while True:
            await self._copy_home()
            if self.home_seq >= from_seq:
                return
            if self._clock.now() > ends_s:
                raise NotNowError(f"its checkpoint on {self.place} ends before seq {from_seq}")
            await self._clock.sleep_until(self._clock.now() + _SOON_S)

    async def wait_for_another_try(self, why: Exception) -> None:
        """Copy the state ahead again, after a pause."""
        _LOG.warning("part %s does not move now: %s", self._name, why)
        self._ahead.forget()
        await self._clock.sleep_until(self._clock.now() + _RETRY_S)

    async def forget_received(self) -> None:
        """Remove what was received of copies that came home: the part is open there."""
        await run_to_end(StateCopy(self._at_home()).clear)

    async def fetch_rest(self) -> bool:
        """Fetch what has changed since from the VM; return whether that is done. Else the last copy at home counts."""
        begun_s = self._clock.now()
        complete = self.place in self._present and await self._try_to_copy_home()
        self._pause.copied(begun_s)
        await self.forget_received()
        return complete

    def arrived(self, left: str, began_s: float) -> None:
        """Note which place the query has left, and since when its events were held."""
        self.moves += 1
        self.pause_s = self._clock.now() - began_s
        self._pause.moved(self.pause_s)
        if self._transfer is not None:
            self.moved_bytes, self._transfer.moved_bytes = self._transfer.moved_bytes, 0
        text = "query %s moved from %s to %s with its state: %.1f MB copied, events held for %.1f s"
        _LOG.info(text, self._name, left, self.place, self.moved_bytes / 1e6, self.pause_s)
        self._ahead.forget()
