"""Does with one query what supervisor, scheduler and fleet do with it in a gateway: shares, moves, losses."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from typing import Final

from gateway.hosts.connection import Connection
from gateway.query.flow.dispatcher import Loss
from gateway.query.running import RunningQuery
from infra.clock import SystemClock
from infra.link.channel import LinkLost
from policies.signals import HOME
from tests.hybrid.places import Places
from tests.hybrid.site import Site, StuckError, is_busy

MOVE_S: Final = 120.0
LOSS_SHARE: Final = 0.25
"""So many of the stays on a VM end with its loss, where it may be lost."""
SHARES: Final = (0.3, 0.5, 0.7, 1.0)


class Traveller(ABC):
    """What both kinds of query have in common.

    Args:
        site: the query's.
        query: the query, open at home.
        places: the hosts.
        draw: chooses.
        losses: whether the VM may be lost.

    Attributes:
        lost: how often the VM was lost while the query used it.
    """

    def __init__(self, site: Site, query: RunningQuery, places: Places, draw: random.Random, *, losses: bool) -> None:
        self._site, self._query, self._places = site, query, places
        self._draw, self._losses = draw, losses
        self._vm: Connection | None = None
        self._seen = site.reopened
        self.lost = 0

    @abstractmethod
    async def go_on(self) -> None:
        """Make the next change of place."""

    @abstractmethod
    async def _mend(self) -> None:
        """Go on without the VM."""

    async def settle(self) -> None:
        """Return once all that was written is committed, whatever happens to the VM meanwhile."""
        while True:
            await self._site.until(lambda: self._site.is_committed or self._is_lost, "what was written is committed")
            if not self._is_lost:
                return
            await self._forget_vm()

    @property
    def _is_lost(self) -> bool:
        """Whether the VM is lost, or the query cannot go on there.

        Raises:
            StuckError: it cannot, and the VM is not at fault.
        """
        if self._vm is None:
            return False
        # Others lose VMs, too: what happened at an earlier one is no reason to keep off this one.
        kept_off = self._site.kept_off.get(self._vm.name) or self._site.kept_off.get(HOME)
        if self._vm.alive and kept_off is not None and not is_busy(kept_off):
            raise StuckError(f"it is kept off the VM: {kept_off}")
        return kept_off is not None or not self._vm.alive

    async def _forget_vm(self) -> None:
        assert self._vm is not None
        lost, self._vm = self._vm, None
        self.lost += not lost.alive
        await self._query.detach(lost.name, Loss("the VM is lost", SystemClock().now()))
        await self._mend()

    async def _on_a_vm(self) -> Connection | None:
        """Return a VM on which the query can be opened; None if it was lost meanwhile, or is too busy."""
        if self._is_lost:
            await self._forget_vm()
        vm = await self._places.vm()
        if self._vm is not vm or self._seen != self._site.reopened:
            self._seen = self._site.reopened
            try:
                await self._query.attach(vm)
            except (LinkLost, TimeoutError):
                return None
            self._vm = vm
        return vm

    @property
    def _loses_now(self) -> bool:
        return self._losses and self._draw.random() < LOSS_SHARE


class MovingTraveller(Traveller):
    """Of a query that keeps state: it goes to the VM, and comes back."""

    async def go_on(self) -> None:
        """Move.

        Raises:
            StuckError: it may not move.
        """
        query = self._query
        if self._is_lost:
            await self._forget_vm()
        if query.places[0] == HOME:
            await self._go()
        elif self._loses_now:
            await self._places.lose()
            await self._forget_vm()
        else:
            query.set_shares({HOME: 1.0})
            await self._move()

    async def _go(self) -> None:
        vm = await self._on_a_vm()
        if vm is None:
            return
        self._query.set_shares({HOME: 0.0, vm.name: 1.0})
        await self._move()

    async def _move(self) -> None:
        query, site = self._query, self._site
        await site.until(lambda: query.move_due or self._is_lost, "its state is copied", MOVE_S)
        if self._is_lost:
            await self._forget_vm()
        elif query.move_due:
            await site.move()

    async def _mend(self) -> None:
        if self._query.places[0] != HOME:
            await self._site.move()
        self._query.set_shares({HOME: 1.0})


class PartsTraveller(MovingTraveller):
    """Of a query that is divided by its keys: some of its parts go to the VM, and come back."""

    async def go_on(self) -> None:
        """Move some parts."""
        if self._is_lost:
            await self._forget_vm()
        if set(self._query.places) != {HOME} and self._loses_now:
            await self._places.lose()
            await self._forget_vm()
            return
        vm = await self._on_a_vm()
        if vm is None:
            return
        share = self._draw.choice(SHARES)
        self._query.set_shares({HOME: 1.0 - share, vm.name: share})
        if any(mover.leaves for mover in self._query.movers) and self._draw.random() < 0.5:
            await self._parts_arrived()  # else they move while further events come

    async def _parts_arrived(self) -> None:
        """Return once all parts are where they are to be: they move by themselves, or with the whole query."""
        query, site = self._query, self._site

        def arrived() -> bool:
            return not any(mover.leaves or mover.heading for mover in query.movers)

        await site.until(
            lambda: arrived() or query.move_due or self._is_lost, "the parts are where they are to be", MOVE_S
        )
        if self._is_lost:
            await self._forget_vm()
        elif query.move_due:
            await site.move()

    async def _mend(self) -> None:
        if set(self._query.places) != {HOME}:
            await self._site.move()
        self._query.set_shares({HOME: 1.0})


class SharingTraveller(Traveller):
    """Of a query without state: each place gets a share of its runs."""

    async def go_on(self) -> None:
        """Change the shares, or lose the VM."""
        if self._vm is not None and self._loses_now:
            await self._places.lose()
        vm = await self._on_a_vm()
        if vm is not None:
            share = self._draw.choice(SHARES)
            self._query.set_shares({HOME: 1.0 - share, vm.name: share})

    async def _mend(self) -> None:
        self._query.set_shares({HOME: 1.0})
