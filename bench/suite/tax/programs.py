"""How the systems are started that the rows compare: a gateway, and plain Spark."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from ruamel.yaml import YAML

from suite.brokers import BROKERS, broker
from suite.row import ROOT, SideError
from suite.tax.load import Work
from suite.tax.plainspark import Job

_JARS = ROOT / "build" / "spark-kafka" / "jars"


@contextmanager
def around() -> Iterator[Mapping[str, str]]:
    """Run a broker."""
    with broker() as there:
        yield {BROKERS: there.brokers}


RUN = ("gateway", "run")
"""The module that runs a gateway, and its arguments before the config."""


def gateway(
    folder: Path,
    work: Work,
    log: Path,
    events: str,
    results: str,
    module: Sequence[str] = RUN,
    *,
    data_path: str = "gateway",
    master: str = "local[1]",
    more: Mapping[str, object] = MappingProxyType({}),
) -> subprocess.Popen[bytes]:
    """Start a gateway whose query stays at home; ``events`` and ``results`` are topics, ``more`` is of the query.

    The query is named by its topic, and so is its consumer group: in another gateway's, that one stays a member for a
    while after it has ended, and the partitions are its.
    """
    queries = {f"q-{events}": {**query(work, events, results), **more}}
    return gateway_of(folder, queries, log, module, data_path=data_path, master=master)


def query(work: Work, events: str, results: str) -> dict[str, object]:
    """Return the config of a query that stays at home."""
    brokers = os.environ[BROKERS]
    return {
        "source": {"type": "kafka", "brokers": brokers, "topics": [events]},
        "schema": work.schema,
        "sql": work.sql,
        "sink": {"type": "kafka", "brokers": brokers, "topic": results},
        "qos": {"latency": "2s"},
        "switching": {"mode": "off"},
    }


def gateway_of(
    folder: Path,
    queries: Mapping[str, object],
    log: Path,
    module: Sequence[str] = RUN,
    *,
    api_port: int = 0,
    cloud: Mapping[str, object] = MappingProxyType({}),
    data_path: str = "gateway",
    master: str = "local[1]",
) -> subprocess.Popen[bytes]:
    """Start a gateway with queries by name; ``cloud`` replaces keys of that section, ``master`` is Spark's."""
    path = write_config(folder, queries, api_port=api_port, cloud=cloud, data_path=data_path, master=master)
    return started([sys.executable, "-m", *module, str(path)], log)


def write_config(
    folder: Path,
    queries: Mapping[str, object],
    *,
    api_port: int = 0,
    cloud: Mapping[str, object] = MappingProxyType({}),
    data_path: str = "gateway",
    master: str = "local[1]",
) -> Path:
    """Write the config of a gateway, or write it anew; arguments as ``gateway_of`` has them."""
    spark: dict[str, object] = {"master": master}
    if data_path == "direct":
        spark["conf"] = {"spark.jars": connector()}
    config = {
        "gateway": {"state_dir": str(folder / "state"), "api": {"listen": f"127.0.0.1:{api_port}"}},
        "private": {"spark": spark, "data_path": data_path},
        "cloud": {
            "provider": "process",
            "max_vms": 1,
            "boot": "30s",
            "billing": {"period": "1h", "minimum": "1h", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
            "budget": {"usd_per_day": 5},
            **cloud,
        },
        "queries": dict(queries),
    }
    path = folder / "config.yaml"
    with path.open("w") as file:
        YAML(typ="safe").dump(config, file)
    return path


def connector() -> str:
    """Return the jars of Spark's Kafka connector, parted by commas.

    Raises:
        SideError: they are missing.
    """
    jars = ",".join(str(jar) for jar in sorted(_JARS.glob("*.jar")))
    if not jars:
        raise SideError("Spark's Kafka connector is missing: run make connector")
    return jars


def job(mode: str, work: Work, folder: str, events: str, results: str) -> Job:
    """Return the same query for Spark alone.

    Raises:
        SideError: Spark's Kafka connector is missing.
    """
    return Job(mode, os.environ[BROKERS], events, results, work.schema, work.sql, connector(), folder)


def started(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    """Start a program whose output goes to a file."""
    with log.open("wb") as file:
        return subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT)
