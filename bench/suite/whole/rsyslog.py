"""A real rsyslog, a peer: it gets lines by RELP and writes them to a file."""

from __future__ import annotations

import shutil
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from suite.row import SideError
from suite.tax.clock import end
from suite.tax.programs import started
from tests.connectors.ports import free_port

_STARTS_S = 20.0
_AHEAD = 256
"""So many lines are sent before the first of them is acknowledged."""
_HEAD = b"<13>1 - - bench - - - "
_SAFE = 'main_queue(queue.type="Direct")'
"""Without a queue a line is acknowledged once it is in the file; with rsyslog's usual one, once it is in memory."""


class Rsyslog:
    """A server on a free port of loopback.

    Args:
        folder: for its files.
        log: its output.
        safe: each line is on the disk before it is acknowledged.
    """

    def __init__(self, folder: Path, log: Path, *, safe: bool) -> None:
        self._out, self._port = folder / "lines", free_port()
        self._read_bytes = self._lines = 0
        self._number = 0
        program = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin:/usr/local/sbin") or shutil.which("rsyslogd")
        if program is None:
            raise SideError("rsyslogd is missing: run make rsyslog")
        config = folder / "rsyslog.conf"
        config.write_text(
            f"""global(workDirectory="{folder}")
module(load="imrelp")
{_SAFE if safe else ""}
input(type="imrelp" address="127.0.0.1" port="{self._port}")
template(name="line" type="string" string="%msg%\\n")
action(type="omfile" file="{self._out}" template="line" sync="{"on" if safe else "off"}")
"""
        )
        self.process = started([program, "-n", "-f", str(config), "-i", str(folder / "pid")], log)
        self._link = self._opened(log)
        self._said = self._link.makefile("rb")
        self._command(b"open", b"relp_version=0\nrelp_software=bench\ncommands=syslog")
        self._answer()

    def _opened(self, log: Path) -> socket.socket:
        ends_s = time.monotonic() + _STARTS_S
        while True:
            try:
                return socket.create_connection(("127.0.0.1", self._port), timeout=120.0)
            except ConnectionRefusedError:
                if self.process.poll() is not None or time.monotonic() > ends_s:
                    self.close()
                    raise SideError(f"rsyslogd: {log.read_text()[-1000:]}") from None
                time.sleep(0.05)

    def _command(self, name: bytes, data: bytes) -> None:
        self._number += 1
        self._link.sendall(b"%d %s %d %s\n" % (self._number, name, len(data), data))

    def _answer(self) -> None:
        """Read an answer: number, ``rsp``, length, code and text.

        Raises:
            SideError: it refuses.
        """
        line = self._said.readline()
        if not line:
            raise SideError("rsyslogd closed the connection")
        _, _, length, data = line.split(b" ", 3)
        self._said.read(int(length) + 1 - len(data))
        if not data.startswith(b"200"):
            raise SideError(f"rsyslogd answered {data.decode()}")

    def send(self, lines: Sequence[bytes]) -> None:
        """Send lines; return when all are acknowledged."""
        for at, line in enumerate(lines):
            if at >= _AHEAD:
                self._answer()
            self._command(b"syslog", _HEAD + line)
        for _ in lines[-_AHEAD:]:
            self._answer()

    def carried(self) -> int:
        """Return how many lines are in the file."""
        if self._out.exists():
            with self._out.open("rb") as file:
                file.seek(self._read_bytes)
                more = file.read()
            self._read_bytes += len(more)
            self._lines += more.count(b"\n")
        return self._lines

    def lines(self) -> list[bytes]:
        """Return what is in the file."""
        return self._out.read_bytes().splitlines()

    def close(self) -> None:
        """End it."""
        end(self.process)
