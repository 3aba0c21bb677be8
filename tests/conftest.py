"""What all tests share: one Spark session, one Kafka broker, one list of figures."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from engines.spark.classarchive import use_options
from engines.spark.scratch import remove_own
from engines.spark.workerpython import quick_python
from tests.connectors.kafka_broker import Broker
from tests.faults.figures import FULL, KEPT, MOST, Figures, Scale
from tests.leaks import leaks

# Machines are noisy: how long an example takes is no finding. A change is not refused for an example that chance found
# in code it did not touch: the same ones are tried each time. SPILLWAY_EXAMPLES=new looks for others.
settings.register_profile("house", deadline=None, derandomize=os.environ.get("SPILLWAY_EXAMPLES") != "new")
settings.load_profile("house")
pytest.register_assert_rewrite(
    "tests.connectors.sink_contract",
    "tests.connectors.source_contract",
    "tests.core.exchange.exchange_lives",
    "tests.policies.scheduler_world",
    "tests.worlds.vm_periods",
)

_TESTS = Path(__file__).parent
_REASON_MOST = 3_000  # characters of a failure that are printed at once

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class _AtOnce:
    """Prints why a test failed at once: a run that is cut off prints no summary."""

    def __init__(self, terminal: pytest.TerminalReporter) -> None:
        self._terminal = terminal

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._terminal.write_line(f"\n{report.nodeid} failed after {report.duration:.0f} s")
            self._terminal.write_line(report.longreprtext[-_REASON_MOST:])


def pytest_sessionstart(session: pytest.Session) -> None:
    """Print failures at once, in the process that prints. Before the session starts, there is no terminal reporter."""
    plugins = session.config.pluginmanager
    terminal = plugins.get_plugin("terminalreporter")
    if terminal is not None and not hasattr(session.config, "workerinput"):
        plugins.register(_AtOnce(terminal))


def pytest_itemcollected(item: pytest.Item) -> None:
    """Keep tests in one process if they share something costly: a file, the Spark session, the hosts of e2e."""
    item.add_marker(pytest.mark.xdist_group(_group_of(item)))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with the largest group, e2e, so that the two test processes end at about the same time."""
    items.sort(key=lambda item: item.path.parent != _TESTS / "e2e")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(node: Any, ids: Sequence[str]) -> None:
    """Refuse versions of pytest and pytest-xdist that ignore groups: without groups, two processes start Spark."""
    lone = [each for each in ids if "@" not in each]
    if node.config.option.dist == "loadgroup" and lone:
        pytest.exit(f"pytest-xdist ignores the group of {lone[0]}: install the versions of constraints.txt", 4)


def _group_of(item: pytest.Item) -> str:
    fixtures: Sequence[str] = getattr(item, "fixturenames", ())
    if "state_dir" in fixtures and item.path.parent == _TESTS / "e2e":
        return "e2e"
    return "spark" if "spark" in fixtures else item.path.relative_to(_TESTS).as_posix()


@pytest.fixture(autouse=True)
def _no_secret_is_logged(request: pytest.FixtureRequest) -> Iterator[None]:
    """No log in a test's folder may have a secret."""
    folder = request.getfixturevalue("tmp_path") if "tmp_path" in request.fixturenames else None
    yield
    if folder is not None:
        assert leaks(folder) == []


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A Kafka broker for the whole session: use your own topics, and leave it running."""
    broker = Broker(tmp_path_factory.mktemp("kafka"))
    broker.start()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def scale() -> Scale:
    """Fault tests are short unless ``SPILLWAY_FAULTS`` is ``full``, or a number: then at most so many of each fault.

    ``SPILLWAY_SEED`` repeats the same random choices.
    """
    return Scale(FULL, int(os.environ.get("SPILLWAY_SEED", "20261121")), MOST)


@pytest.fixture(scope="session")
def figures() -> Figures:
    """What the fault tests and those of the WAN measure; stored by a run that injects each fault in full."""
    return Figures(judge_times=FULL, kept=KEPT if FULL and MOST is None else None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A small local session with the settings of every engine host: UTC, ANSI, no UI."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # else Spark's Python workers are whatever python3 is on the path
    builder = (
        SparkSession.builder.master("local[2]")
        .appName("spillway-tests")
        .config("spark.driver.extraJavaOptions", use_options())
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.streaming.stateStore.providerClass", ROCKSDB)
        .config("spark.sql.warehouse.dir", str(tmp_path_factory.mktemp("warehouse")))
    )
    with quick_python(tmp_path_factory.mktemp("python")):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    remove_own()  # what the tests ran of an engine host in this process
