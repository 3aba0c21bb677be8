"""A real NATS server, a peer."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType

from suite.row import SideError
from tests.connectors.ports import free_port

_STARTS_S, _STOPS_S = 20.0, 10.0


class NatsServer:
    """A server on a free port of loopback."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="spillway-bench-")
        self._port = free_port()
        self.url = f"nats://127.0.0.1:{self._port}"

    def __enter__(self) -> NatsServer:
        program = shutil.which("nats-server", path="/usr/sbin:/usr/bin:/usr/local/bin") or shutil.which("nats-server")
        if program is None:
            raise SideError("nats-server is missing: run make nats")
        config = Path(self._folder.name) / "nats.conf"
        config.write_text(f'listen: "127.0.0.1:{self._port}"\n')
        with (Path(self._folder.name) / "log").open("wb") as log:
            self._process = subprocess.Popen([program, "-c", config], stdout=log, stderr=log)
        ends_s = time.monotonic() + _STARTS_S
        while not self._listens():
            if self._process.poll() is not None or time.monotonic() > ends_s:
                self._process.kill()
                raise SideError(f"nats-server: {(Path(self._folder.name) / 'log').read_text()[-1000:]}")
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOPS_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
