"""The one SparkSession of an engine host: its settings, and those that must be equal at every site."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pyspark
from pyspark.sql import SparkSession

from engines.spark import pythondaemon
from engines.spark.classarchive import java_program, use_options
from engines.spark.scratch import scratch_folder
from engines.spark.sparkconf import SQL, TIMEZONE, equal_everywhere, is_local
from engines.spark.workerpython import quick_python
from infra.messages import PROTOCOL
from infra.runtime import Runtime

_JAVA_MIN = 17
_NO_CONF: Mapping[str, str] = MappingProxyType({})
# While Spark starts, tens of thousands of methods are called often enough for the JVM's second compiler, which takes
# cores that Spark needs then. It gets a method after ten times as many calls: what handles rows is there in seconds.
_FEW_COMPILED_TWICE = (
    "-XX:+IgnoreUnrecognizedVMOptions -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_LOG_CONFIG = Path(__file__).with_name("log4j2.properties")


class SessionError(Exception):
    """Spark cannot be started here; the message says what to do."""


def java_version() -> str:
    """Return the major version of the Java that Spark will use (``17``).

    Raises:
        SessionError: Java is missing, or older than Spark needs.
    """
    java, home = java_program(), os.environ.get("JAVA_HOME")
    where = f"JAVA_HOME={home}" if home else "PATH"
    if java is None:
        raise SessionError(f"no java in {where}; install Java {_JAVA_MIN} or later (Debian: openjdk-17-jre-headless)")
    said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if found is None:
        raise SessionError(f"{java} -version does not print a version: {said.strip()[:200]!r}; check {where}")
    if int(found[1]) < _JAVA_MIN:
        raise SessionError(f"{java} is Java {found[1]}; Spark {pyspark.__version__} needs {_JAVA_MIN} or later")
    return found[1]


def runtime_ahead(conf: Mapping[str, str] = _NO_CONF) -> Runtime:
    """Return the runtime that the session will have, so that a booting host can greet a gateway.

    Args:
        conf: the user's settings.

    Raises:
        SessionError: Java is missing or too old.
    """
    return Runtime(
        protocol=PROTOCOL,
        spark=pyspark.__version__,
        java=java_version(),
        python=_python(),
        timezone=TIMEZONE,
        ansi=True,
        settings=equal_everywhere(conf),
    )


def runtime_of(session: SparkSession, conf: Mapping[str, str] = _NO_CONF) -> Runtime:
    """Return the runtime of the running session, with those of its settings that are in ``conf``."""
    java = session.sparkContext._jvm.System.getProperty("java.specification.version")  # type: ignore[union-attr]  # noqa: SLF001
    return Runtime(
        protocol=PROTOCOL,
        spark=session.version,
        java=str(java),
        python=_python(),
        timezone=str(session.conf.get("spark.sql.session.timeZone")),
        ansi=session.conf.get("spark.sql.ansi.enabled") == "true",
        settings={name: str(session.conf.get(name)) for name in equal_everywhere(conf)},
    )


def build_session(
    master: str, workdir: Path, cores: int, *, jvm_options: str | None = None, conf: Mapping[str, str] = _NO_CONF
) -> SparkSession:
    """Start Spark for one engine host.

    Args:
        master: ``local[N]``, or a cluster's address as Spark understands it.
        workdir: a folder of this host alone; Spark's own files go below it.
        cores: how many tasks run at a time, and so how many shuffle partitions are useful.
        jvm_options: for the driver's JVM; None: use this machine's archive of classes if there is one.
        conf: the user's settings, without those that Spillway owns.

    Raises:
        SessionError: Java is missing, the session differs from ``runtime_ahead``, or an executor cannot run our Python.
    """
    ahead = runtime_ahead(conf)
    # Spark would log 6 kB of JSON for each error that it raises; the host logs what failed and why.
    logging.getLogger("SQLQueryContextLogger").setLevel(logging.CRITICAL)
    for left in ("spark", "tmp"):  # left by an earlier start that was killed
        shutil.rmtree(workdir / left, ignore_errors=True)
    builder = SparkSession.Builder().appName("spillway").master(master)
    options = use_options() if jvm_options is None else jvm_options
    for name, value in {**_settings(master, workdir, cores, options), **conf}.items():
        builder = builder.config(name, value)
    if is_local(master):
        with quick_python(_made(workdir)):
            session = builder.getOrCreate()
    else:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        session = builder.getOrCreate()
    differences = ahead.differences(runtime_of(session, conf))
    if differences:
        raise SessionError(
            f"Spark started with unexpected settings: {'; '.join(differences)}; check SPARK_HOME, SPARK_CONF_DIR"
        )
    if not is_local(master):
        _check_executors(session)
    return session


def sibling(session: SparkSession) -> SparkSession:
    """Return a session in the same Spark with its own views and settings, set up like every other."""
    new = session.newSession()
    for name, value in SQL.items():
        new.conf.set(name, value)
    return new


def _settings(master: str, workdir: Path, cores: int, jvm_options: str) -> dict[str, str]:
    # Quoted, since a folder's name may contain a space.
    places = f'-Dlog4j2.configurationFile={_LOG_CONFIG.as_uri()} "-Djava.io.tmpdir={_made(workdir / "tmp")}"'
    settings = {
        "spark.driver.extraJavaOptions": f"{places} {_FEW_COMPILED_TWICE} {jvm_options}",
        "spark.local.dir": str(_made(workdir / "spark")),
        # A row that needs too much memory must fail its task, so that it is isolated, instead of ending the host.
        "spark.executor.killOnFatalError.depth": "0",
        "spark.scheduler.mode": "FAIR",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": (workdir / "warehouse").as_uri(),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    settings |= SQL
    if is_local(master):
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
        settings |= {
            # Not in a cluster: its machines may not have this project.
            "spark.python.daemon.module": pythondaemon.__name__,
            # Over TCP each task waits 40 ms, until Java's kernel acknowledges what Python has sent.
            "spark.python.unix.domain.socket.enabled": "true",
            # Spark trusts everyone who can open such a socket, so its folder is private.
            "spark.python.unix.domain.socket.dir": str(scratch_folder("python")),
        }
    return settings


def _check_executors(session: SparkSession) -> None:
    # A worker without PyArrow would show up as a time-out of the first query; this check gives a clear error.
    def look(_: int) -> str:
        try:
            import pyarrow
        except ImportError as error:
            return f"no pyarrow ({error})"
        return f"{sys.version_info[0]}.{sys.version_info[1]}" if pyarrow.__version__ else ""

    answers = set(session.sparkContext.parallelize(range(4), 4).map(look).collect())
    if answers != {_python()}:
        raise SessionError(
            f"the executors have {sorted(answers)}, but Python {_python()} with pyarrow is needed; "
            "set PYSPARK_PYTHON to such a Python on every machine of the cluster"
        )


def jvm_runs(session: SparkSession) -> bool:
    """Return whether the JVM behind a session runs."""
    process = _jvm_process(session)
    return process is None or process.poll() is None


def is_ending(session: SparkSession) -> bool:
    """Return whether Spark was stopped under its queries, or its JVM does not answer any more."""
    try:
        return bool(session.sparkContext._jsc.sc().isStopped())  # noqa: SLF001 - PySpark has no public way to ask
    except Exception:  # the bridge to a JVM that is gone may raise anything
        return True


def exit_code(session: SparkSession) -> int | None:
    """Return the exit code of the JVM behind a session; None while it runs."""
    process = _jvm_process(session)
    return None if process is None else process.poll()


def stop_session(session: SparkSession, *, within_s: float = 10.0) -> None:
    """Stop Spark and its JVM, which is killed after ``within_s``; errors while stopping are ignored."""
    process = _jvm_process(session)
    gateway = session.sparkContext._gateway  # noqa: SLF001 - PySpark keeps the JVM for a next session otherwise
    with contextlib.suppress(Exception):
        session.stop()
    if gateway is not None:
        gateway.shutdown()
    if process is not None:
        if process.stdin is not None:
            process.stdin.close()  # the JVM waits for this
        _ended(process, within_s)


def _jvm_process(session: SparkSession) -> subprocess.Popen[bytes] | None:
    return getattr(session.sparkContext._gateway, "proc", None)  # noqa: SLF001


def _ended(process: subprocess.Popen[bytes], within_s: float) -> None:
    try:
        process.wait(within_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _python() -> str:
    return f"{sys.version_info.major}.{sys.version_info.minor}"
