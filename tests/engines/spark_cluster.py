"""Spark's own standalone master and worker; the worker cannot see the driver's folder."""

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
from pathlib import Path

import pyspark

from engines.spark.classarchive import use_options
from tests.connectors.ports import free_port

SPARK = Path(pyspark.__file__).parent
DEADLINE_S = 120.0


@contextmanager
def cluster(folder: Path, hidden: Sequence[Path]) -> Iterator[str]:
    """Run a master and a worker of two cores; yield the master's address.

    Args:
        folder: for their own files.
        hidden: folders that executors must not see: as root, empty file systems cover them in their mount namespace.
    """
    port = free_port()
    env = (
        os.environ
        | jvm_environment()
        | {
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
        }
    )
    spark_class = str(SPARK / "bin" / "spark-class")
    master = [spark_class, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
    worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--cores", "2", "--memory", "2g"]
    worker += ["--host", "127.0.0.1", "--work-dir", str(folder / "work"), "--webui-port", "0"]
    worker += [f"spark://127.0.0.1:{port}"]
    if os.geteuid() == 0:
        hide = " && ".join(f"mount -t tmpfs none {shlex.quote(str(each))}" for each in hidden)
        worker = ["unshare", "--mount", "sh", "-c", f'{hide} && exec "$0" "$@"', *worker]
    folder.mkdir(parents=True)
    started = [_start([*master, "--webui-port", "0"], env, folder / "master.log")]
    try:
        _wait_for(port, started[0], folder / "master.log")
        started.append(_start(worker, env, folder / "worker.log"))
        yield f"spark://127.0.0.1:{port}"
    finally:
        for process in started:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def jvm_environment() -> dict[str, str]:
    """Return the environment that lets each JVM, also an executor's, start as quickly as the driver's in ``make test``.

    Not for an engine host: with it ``java -version`` prints one more line, so the host would not find its archive of
    classes.
    """
    return {"JDK_JAVA_OPTIONS": f"{os.environ.get('SPARK_SUBMIT_OPTS', '')} {use_options()}"}


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
