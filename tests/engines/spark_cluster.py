"""Spark's own standalone master and workers, which cannot see all folders of the driver."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyspark

from engines.spark.classarchive import use_options
from tests.connectors.ports import free_port

SPARK = Path(pyspark.__file__).parent
DEADLINE_S = 120.0


@dataclass
class Worker:
    """A worker.

    Attributes:
        name: of its machine; as root, else it has that of this machine.
        process: the worker; its executors end soon after it.
        local: where its executors keep what they work on.
    """

    name: str
    process: subprocess.Popen[bytes]
    local: Path

    def kill(self) -> None:
        """Send SIGKILL to the worker alone."""
        self.process.kill()
        self.process.wait(DEADLINE_S)


class Cluster:
    """A master, and workers that are added; all are killed by ``close``.

    Args:
        folder: for their own files.
        cores: of each worker.

    Attributes:
        master: its address.
        workers: in the order in which they were added.
    """

    def __init__(self, folder: Path, cores: int) -> None:
        self._folder, self._cores = folder, cores
        self._env = os.environ | jvm_environment() | {"SPARK_HOME": str(SPARK), "SPARK_LOCAL_IP": "127.0.0.1"}
        self._env["PYSPARK_PYTHON"] = sys.executable
        port = free_port()
        self.master = f"spark://127.0.0.1:{port}"
        self.workers: list[Worker] = []
        folder.mkdir(parents=True)
        log = folder / "master.log"
        self._process = _start([*_program("master.Master"), "--port", str(port)], self._env, log)
        _wait_for(port, self._process, log)

    def add(self, hidden: Sequence[Path]) -> None:
        """Start a worker.

        Args:
            hidden: folders that executors must not see: as root, empty file systems cover them in the worker's mount
                namespace.
        """
        number = len(self.workers) + 1
        name, local = f"worker-{number}", self._folder / f"local-{number}"
        command = [*_program("worker.Worker"), "--cores", str(self._cores), "--memory", "2g", self.master]
        command += ["--work-dir", str(self._folder / f"work-{number}")]
        env = self._env | {"SPARK_LOCAL_DIRS": str(local)}
        process = _start(_hiding(hidden, name, command), env, self._folder / f"{name}.log")
        self.workers.append(Worker(name, process, local))

    def close(self) -> None:
        """Kill all processes."""
        for process in (self._process, *(worker.process for worker in self.workers)):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)


@contextmanager
def cluster(folder: Path, *hidden: Sequence[Path], cores: int = 2) -> Iterator[Cluster]:
    """Run a master, and a worker for each of ``hidden``; see `Cluster`."""
    found = Cluster(folder, cores)
    try:
        for each in hidden:
            found.add(each)
        yield found
    finally:
        found.close()


def jvm_environment() -> dict[str, str]:
    """Return the environment that lets each JVM, also an executor's, start as quickly as the driver's in ``make test``.

    Not for an engine host: with it ``java -version`` prints one more line, so the host would not find its archive of
    classes.
    """
    return {"JDK_JAVA_OPTIONS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {use_options()}"}


def _program(name: str) -> list[str]:
    spark_class = str(SPARK / "bin" / "spark-class")
    return [spark_class, f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", "--webui-port", "0"]


def _hiding(unseen: Sequence[Path], name: str, command: list[str]) -> list[str]:
    if os.geteuid() != 0:
        return command
    steps = [f"hostname {name}", *(f"mount -t tmpfs none {shlex.quote(str(each))}" for each in unseen)]
    return ["unshare", "--mount", "--uts", "sh", "-c", f'{" && ".join(steps)} && exec "$0" "$@"', *command]


def _start(command: Sequence[str], env: dict[str, str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as file:
        return subprocess.Popen(command, env=env, stdout=file, stderr=file, start_new_session=True)


def _wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while True:
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, f"no master after {DEADLINE_S} s"
        time.sleep(0.1)
