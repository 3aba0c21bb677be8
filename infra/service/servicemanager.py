"""Tells the service manager how the daemon is: systemd's sd_notify, for units of ``Type=notify``.

The protocol is one datagram of lines ``NAME=value`` to the socket in ``NOTIFY_SOCKET``. Without that variable nothing
is sent.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping

_LOG = logging.getLogger(__name__)
_PER_DEADLINE = 3
"""The watchdog hears of the daemon so many times before it would end it."""


class ServiceManager:
    """Sends what systemd wants to know.

    Args:
        environ: of the process. The variables are removed, so that child processes do not speak for the daemon.
    """

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        self._address = environ.pop("NOTIFY_SOCKET", "")
        every_us, pid = environ.pop("WATCHDOG_USEC", ""), environ.pop("WATCHDOG_PID", "")
        mine = not pid or pid == str(os.getpid())
        self._alive_every_s = float(every_us) / 1e6 / _PER_DEADLINE if every_us.isdigit() and mine else None
        self._alive_s = -float("inf")

    def phase(self, phase: str) -> None:
        """Tell in which phase the gateway is; one that runs or stands by has started."""
        news = {"running": ("READY=1",), "standby": ("READY=1",), "stopping": ("STOPPING=1",)}.get(phase, ())
        self._send(*news, f"STATUS={phase}")

    def reloading(self) -> None:
        """Tell that the config is being reloaded; call ``phase`` when that has ended."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def alive(self, now_s: float) -> None:
        """Tell that the daemon works; call it often.

        Args:
            now_s: on any clock that does not jump.
        """
        if self._alive_every_s is not None and now_s - self._alive_s >= self._alive_every_s:
            self._alive_s = now_s
            self._send("WATCHDOG=1")

    def _send(self, *lines: str) -> None:
        if not self._address:
            return
        # A leading @ stands for a name in the abstract namespace.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sender:
                sender.setblocking(False)
                sender.sendto("\n".join(lines).encode(), address)
        except OSError as error:
            _LOG.warning("the service manager cannot be told %s: %s", lines[0], error)
