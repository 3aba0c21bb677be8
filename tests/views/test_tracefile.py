"""The trace that the daemon records is what ``simulate --trace`` reads."""

from __future__ import annotations

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from gateway.cli import main
from gateway.query.flow.run import Run
from gateway.simulate.plan import read_trace
from gateway.views.tracefile import NoTraceError, TraceFile, recorded
from infra.clock import SystemClock
from tests.gateway.daemon_site import configured
from tests.support.waiting import until

NO_ROWS = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
DEADLINE_S = 60.0


def run(first: int, events: int, arrival_s: float, raw_bytes: int = 100) -> Run:
    return Run(first, first + events - 1, NO_ROWS, arrival_s, raw_bytes)


def lines(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))


def test_events_are_summed_up_by_the_second_they_were_due_in(tmp_path: Path) -> None:
    path = tmp_path / "new" / "trace.csv"
    trace = TraceFile(path, 1000.0)
    trace.arrived("a", run(0, 10, 1000.2))
    trace.arrived("a", run(10, 5, 1000.9))
    trace.arrived("b, c", run(0, 1, 1001.1))
    trace.arrived("a", run(15, 2, 990.0))
    trace.close()
    assert lines(path) == [
        ["at_s", "query", "events", "bytes"],
        ["0", "a", "17", "300"],
        ["1", "b, c", "1", "100"],
    ]
    played = read_trace(path)
    assert played["a"].load.events(0, 1) == 17
    assert played["b, c"].load.events(0, 5) == 1
    assert played["a"].event_bytes == round(300 / 17)


def test_a_run_that_is_read_again_counts_once(tmp_path: Path) -> None:
    trace = TraceFile(tmp_path / "t.csv", 0.0)
    for first, events in ((0, 10), (0, 10), (5, 10)):
        trace.arrived("a", run(first, events, 1.0))
    trace.close()
    assert lines(tmp_path / "t.csv")[1:] == [["1", "a", "15", "150"]]


def test_a_trace_is_bounded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.csv"
    trace = TraceFile(path, 0.0, file_bytes=60)
    for second in range(20):
        trace.arrived("a", run(second, 1, second + 0.5))
        trace.flush()
    trace.close()
    assert path.stat().st_size <= 60
    assert len(lines(path)) > 2
    assert caplog.text.count("has stopped") == 1
    size = path.stat().st_size
    with closing(TraceFile(path, 0.0, file_bytes=60)) as more:
        more.arrived("a", run(0, 1, 0.5))
    assert path.stat().st_size == size, "the limit is that of the file"


def test_a_trace_is_continued_after_its_last_second(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    for started_s in (0.0, 5000.0):
        with closing(TraceFile(path, started_s)) as trace:
            trace.arrived("a", run(0, 2, started_s - 3.0))
            trace.arrived("a", run(2, 3, started_s + 7.5))
    assert lines(path) == [
        ["at_s", "query", "events", "bytes"],
        ["0", "a", "2", "100"],
        ["7", "a", "3", "100"],
        ["8", "a", "2", "100"],
        ["15", "a", "3", "100"],
    ]
    assert read_trace(path)["a"].load.events(0, 20) == 10


@pytest.mark.parametrize("torn", ["8,a,2", "8,a,2,1"])
def test_a_line_that_was_torn_by_a_kill_is_dropped(tmp_path: Path, torn: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"at_s,query,events,bytes\n7,a,1,10\n{torn}")
    TraceFile(path, 0.0).close()
    assert path.read_text() == "at_s,query,events,bytes\n7,a,1,10\n"
    path.write_text("at_s,query,events,bytes\n7,a")
    with closing(TraceFile(path, 0.0)) as trace:
        trace.arrived("a", run(0, 1, 0.5))
    assert path.read_text() == "at_s,query,events,bytes\n0,a,1,100\n"


@pytest.mark.parametrize("text", ["other,columns\n1,2\n", "at_s,query,events,bytes\nx,y,z,a\n", "at_s,query"])
def test_another_file_is_not_continued(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(NoTraceError, match="is not a trace"):
        TraceFile(path, 0.0)
    assert path.read_text() == text
    configured(tmp_path)
    said = CliRunner().invoke(main, ["run", str(tmp_path / "config.yaml"), "--record", str(path)])
    assert (said.exit_code, "is not a trace" in said.output) == (2, True)


class Query:
    on_run: Callable[[str, Run], None] | None = None


async def test_what_has_come_is_written_within_a_second_or_so(tmp_path: Path) -> None:
    query, path, clock = Query(), tmp_path / "t.csv", SystemClock()
    async with recorded(path, {"a": query}, clock):
        assert query.on_run is not None
        query.on_run("a", run(0, 3, clock.now()))
        await until(lambda: len(lines(path)) >= 2, deadline_s=DEADLINE_S)
    untouched = Query()
    async with recorded(None, {"a": untouched}, clock):
        assert untouched.on_run is None


KILLED = """
import sys, time
import pyarrow as pa
from pathlib import Path
from gateway.query.flow.run import Run
from gateway.views.tracefile import TraceFile
trace = TraceFile(Path(sys.argv[1]), 0.0)
rows = pa.RecordBatch.from_pylist([], schema=pa.schema([]))
trace.arrived("a", Run(0, 6, rows, 0.5, 70))
trace.flush()
print("written", flush=True)
time.sleep(600)
"""


def test_what_was_flushed_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    command = [sys.executable, "-c", KILLED, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "written\n"
        os.kill(process.pid, signal.SIGKILL)
    assert read_trace(path)["a"].load.events(0, 1) == 7
