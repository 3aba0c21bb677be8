"""A WAN and its sites: a namespace for home, one for each VM in the cloud, and one for the line between them."""

from __future__ import annotations

import asyncio
import enum
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final

from infra.wan import namespaces
from infra.wan.base import CLOUD_BRIDGE, HOME_BRIDGE, Line
from infra.wan.commands import ip
from infra.wan.errors import WanError, WanUnavailableError
from infra.wan.machine import MachineLine
from infra.wan.native import NativeLine
from infra.wan.settings import Direction, WanSettings
from infra.wan.site import WanSite

HOME: Final = "home"
SITES_MAX: Final = 250
_IMAGE: Final = Path("build/wan")


class Backend(enum.Enum):
    """The kernel whose netem is used."""

    NATIVE = "native"
    MACHINE = "machine"


class Wan:
    """Home and the cloud, with a WAN between them; use as an async context manager, as root.

    Args:
        settings: of both directions at the start.
        backend: the kernel whose netem is used; None: the running kernel if it has netem.
        image: the folder with the small virtual machine's kernel, see ``.ci/wan``.

    Attributes:
        backend: the kernel whose netem is used; None before the start if none was given.
    """

    def __init__(
        self, settings: WanSettings | None = None, *, backend: Backend | None = None, image: Path = _IMAGE
    ) -> None:
        self.backend = backend
        self._image = image
        self._settings = dict.fromkeys(Direction, settings or WanSettings())
        self._cut: set[Direction] = set()
        self._names = namespaces.NamespaceNames.new()
        self._namespace = self._names.of("wan")
        self._line: Line | None = None
        self._is_made = False
        self._sites: dict[str, WanSite] = {}
        self._sites_made = 0
        self._turn = asyncio.Lock()

    @property
    def prefix(self) -> str:
        """What the names of its network namespaces begin with."""
        return self._names.prefix

    @property
    def line(self) -> Line | None:
        """What delays, drops and cuts; None while the WAN is not started."""
        return self._line

    def __repr__(self) -> str:
        cut = "+".join(sorted(each.value for each in self._cut)) or "nothing"
        return f"Wan({self.backend}, {len(self._sites)} sites, cut: {cut})"

    async def __aenter__(self) -> Wan:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Create the WAN and the site ``home``; after a failed start, ``stop`` removes what was created.

        Raises:
            WanUnavailableError: this machine cannot have a WAN; the text says why.
            WanError: it failed although this machine could have one.
        """
        _refuse_others()
        await namespaces.sweep()
        self._is_made = True
        try:
            await namespaces.add(self._namespace)
        except WanError as error:
            raise WanUnavailableError(f"this root user may not create network namespaces: {error}") from error
        for bridge in (HOME_BRIDGE, CLOUD_BRIDGE):
            await ip(self._namespace, f"link add {bridge} type bridge", f"link set {bridge} up")
        await self._start_line()
        for direction in Direction:
            await self._apply(direction)
        await self.add(HOME)

    async def stop(self) -> None:
        """End every process at every site, then remove everything that was created; harmless when there is nothing.

        Raises:
            WanError: a process does not exit; everything else is removed all the same.
        """
        if not self._is_made:
            return
        self._is_made = False
        line, self._line = self._line, None
        if line is not None:
            await line.close()
        sites, self._sites = self._sites, {}
        present = await namespaces.existing()
        ends: list[Callable[[], Awaitable[None]]] = [site.end for site in sites.values() if site.namespace in present]
        if self._namespace in present:
            ends.append(partial(namespaces.remove, self._namespace))
        failed: list[WanError] = []
        for end in ends:
            try:
                await end()
            except WanError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    @property
    def sites(self) -> Mapping[str, WanSite]:
        """All sites by name, with ``home``."""
        return self._sites

    @property
    def home(self) -> WanSite:
        """The private site."""
        return self._sites[HOME]

    async def add(self, name: str) -> WanSite:
        """Create a site in the cloud.

        Raises:
            WanError: the name is taken, or too many sites were created already.
        """
        async with self._turn:
            if name in self._sites:
                raise WanError(f"site {name} already exists")
            if self._sites_made >= SITES_MAX:
                raise WanError(f"{SITES_MAX} sites were created; addresses are not reused")
            self._sites_made += 1
            site = WanSite(name, self._names.of(name), self._sites_made)
            self._sites[name] = site
            await site.start(self._namespace, HOME_BRIDGE if name == HOME else CLOUD_BRIDGE)
            for other in self._sites.values():
                if other is not site:
                    await site.know(other)
                    await other.know(site)
            return site

    async def remove(self, name: str) -> None:
        """End all processes at a site and remove it."""
        await self._sites.pop(name).end()

    async def set(self, settings: WanSettings, *directions: Direction) -> None:
        """Change what happens to packets sent from now on; without directions, in both. A cut stays.

        Raises:
            WanError: it failed.
        """
        for direction in directions or Direction:
            self._settings[direction] = settings
            await self._apply(direction)

    async def cut(self, *directions: Direction) -> None:
        """Drop every packet sent from now on, silently; without directions, in both.

        Raises:
            WanError: it failed.
        """
        for direction in directions or Direction:
            self._cut.add(direction)
            await self._apply(direction)

    async def heal(self, *directions: Direction) -> None:
        """End a cut; without directions, in both.

        Raises:
            WanError: it failed.
        """
        for direction in directions or Direction:
            self._cut.discard(direction)
            await self._apply(direction)

    async def _start_line(self) -> None:
        if self.backend is not Backend.MACHINE:
            self._line = NativeLine()
            try:
                await self._line.start(self._namespace)
            except WanUnavailableError:
                if self.backend is Backend.NATIVE:
                    raise
            else:
                self.backend = Backend.NATIVE
                return
        self._line, self.backend = MachineLine(self._image), Backend.MACHINE
        await self._line.start(self._namespace)

    async def _apply(self, direction: Direction) -> None:
        if self._line is None:
            raise WanError("the WAN is not started")
        await self._line.apply(direction, self._settings[direction].netem(is_cut=direction in self._cut))


def _refuse_others() -> None:
    if sys.platform != "linux":
        raise WanUnavailableError("network namespaces need Linux")
    if os.geteuid() != 0:
        raise WanUnavailableError("only root may create network namespaces; run it as root, or with sudo")
