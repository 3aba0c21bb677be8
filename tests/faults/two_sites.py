"""Home and the cloud as network namespaces of this machine, with a WAN of 70 ms between them that a test cuts."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from infra.wan import Wan, WanSettings
from tests.wan.wan_site import IMAGE

FAR = WanSettings(delay_s=0.035)
_CLONE_NEWNET = 0x40000000


class TwoSites:
    """A home and a place for one VM; from ``start`` to ``stop``.

    Args:
        settings: of the WAN.

    Attributes:
        why_no_wan: why there is no WAN: then both sites are this machine; empty if there is one.
    """

    def __init__(self, settings: WanSettings = FAR) -> None:
        self.why_no_wan = ""
        self._runner = asyncio.Runner()
        self._wan = Wan(settings, image=IMAGE)

    def start(self) -> None:
        """Make the WAN.

        Raises:
            WanUnavailableError: this machine cannot have one.
        """
        self._runner.run(self._wan.start())
        self._runner.run(self._wan.add("vm-1"))

    @property
    def cloud(self) -> dict[str, Any]:
        """The part of a config's ``cloud`` that places its VM."""
        if self.why_no_wan:
            return {}
        site = self._wan.sites["vm-1"]
        return {"namespaces": {site.namespace: site.address}}

    @contextlib.contextmanager
    def at_home(self) -> Iterator[None]:
        """Let this thread, and the threads and processes that it starts, live at home."""
        if self.why_no_wan:
            yield
            return
        with Path("/proc/thread-self/ns/net").open() as before:
            with Path("/run/netns", self._wan.home.namespace).open() as home:
                _enter(home.fileno())
            try:
                yield
            finally:
                _enter(before.fileno())

    def cut(self) -> None:
        """Drop every packet between the sites, silently."""
        self._runner.run(self._wan.cut())

    def heal(self) -> None:
        """End the cut."""
        self._runner.run(self._wan.heal())

    def stop(self) -> None:
        """Remove the WAN."""
        self._runner.run(self._wan.stop())
        self._runner.close()


def _enter(namespace: int) -> None:
    """Move this thread to a network namespace; Python has no function for it before 3.12."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))


def kill_trees(pids: list[int]) -> None:
    """Kill processes and all their descendants, as when a machine loses its power."""
    roots = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    everyone = [each for root in roots for each in [root, *root.children(recursive=True)]]
    for process in everyone:
        with contextlib.suppress(psutil.NoSuchProcess):  # it may have ended with another one
            process.kill()
