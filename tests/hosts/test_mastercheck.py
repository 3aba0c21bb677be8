"""Spillway reports quickly, with the config key, whether a Spark master answers."""

from __future__ import annotations

import socket
import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gateway.cli import main
from gateway.hosts.mastercheck import MasterAwayError, master_addresses, see_master
from infra.clock import SystemClock
from tests.connectors.ports import free_port

CONFIG = """\
gateway: {{state_dir: state, api: {{listen: "127.0.0.1:0"}}}}
private:
  spark: {{master: "spark://127.0.0.1:{port}"}}
queries:
  words:
    source: {{type: file, path: in.jsonl}}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {{type: file, path: out}}
    qos: {{latency: 2s}}
"""


class Answering(socketserver.ThreadingTCPServer):
    """Sends ``answer`` after it has received something; closes at once if that is empty, and never if it is None."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, answer: bytes | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answer = answer
        self.over = threading.Event()


class Handler(socketserver.BaseRequestHandler):
    server: Answering

    def handle(self) -> None:
        if self.server.answer is None:
            self.server.over.wait(60)
        elif self.server.answer and self.request.recv(100):
            self.request.sendall(self.server.answer)


@contextmanager
def answering(answer: bytes | None) -> Iterator[int]:
    with Answering(answer) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_address[1]
        server.over.set()
        server.shutdown()


@pytest.fixture
def listening() -> Iterator[int]:
    with answering(b"\0\0\0\0\0\0\0\x0d\x08\0\0\0\0") as port:
        yield port


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that refuses no connection and accepts none: the connections queued before are never accepted."""
    with socket.socket() as server, socket.socket() as first, socket.socket() as second:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        for one in (first, second):
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("master", "addresses"),
    [
        ("local[2]", []),
        ("yarn", []),
        ("spark://a:7077", [("a", 7077)]),
        ("spark://a:7077,b.example.org:7078", [("a", 7077), ("b.example.org", 7078)]),
        ("spark://[::1]:7077", [("::1", 7077)]),
        ("k8s://https://api.example.org:6443", [("api.example.org", 6443)]),
        ("k8s://https://api.example.org", [("api.example.org", 443)]),
        ("k8s://http://127.0.0.1:8001/path", [("127.0.0.1", 8001)]),
        ("k8s://http://api", [("api", 80)]),
        ("k8s://api:6443", [("api", 6443)]),
    ],
)
def test_addresses(master: str, addresses: list[tuple[str, int]]) -> None:
    assert master_addresses(master) == addresses


def test_a_master_that_answers_is_seen(listening: int) -> None:
    see_master(f"spark://127.0.0.1:{listening}", SystemClock())
    see_master(f"k8s://http://127.0.0.1:{listening}", SystemClock())
    with answering(b"") as port:
        see_master(f"spark://127.0.0.1:{port}", SystemClock())  # as one does that wants TLS
    see_master("local[1]", SystemClock())


def test_of_several_masters_one_that_answers_is_enough(listening: int, silent: int) -> None:
    begun_s = time.monotonic()
    see_master(
        f"spark://127.0.0.1:{silent},127.0.0.1:{free_port()},127.0.0.1:{listening}", SystemClock(), within_s=30.0
    )
    assert time.monotonic() - begun_s < 15.0, "the silent one is not waited for"


def test_each_address_that_does_not_answer_is_named(silent: int) -> None:
    closed = free_port()
    with pytest.raises(MasterAwayError) as caught:
        see_master(f"spark://127.0.0.1:{silent},127.0.0.1:{closed}", SystemClock(), within_s=0.5)
    said = str(caught.value)
    assert said.startswith("private.spark.master: no Spark master answers at ")
    assert f"127.0.0.1:{silent} (no answer within 0.5 s)" in said
    assert f"127.0.0.1:{closed} (Connection refused)" in said


@pytest.mark.parametrize(
    ("answer", "says"),
    [(None, "no answer within 0.5 s"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something else answers: HTTP")],
)
def test_taking_a_connection_is_not_enough_for_a_master(answer: bytes | None, says: str) -> None:
    with answering(answer) as port, pytest.raises(MasterAwayError, match=says):
        see_master(f"spark://127.0.0.1:{port}", SystemClock(), within_s=0.5)


def test_an_impossible_port_is_no_answer() -> None:
    with pytest.raises(MasterAwayError, match="99999"):
        see_master("spark://127.0.0.1:99999", SystemClock())


def written(folder: Path) -> tuple[Path, int]:
    (folder / "in.jsonl").touch()
    path, port = folder / "config.yaml", free_port()
    path.write_text(CONFIG.format(port=port))
    return path, port


def test_run_says_at_once_that_the_master_is_away(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, port = written(tmp_path)
    begun_s = time.monotonic()
    result = CliRunner().invoke(main, ["run", str(path)])
    assert time.monotonic() - begun_s < 10.0
    assert result.exit_code == 1
    assert f"private.spark.master: no Spark master answers at 127.0.0.1:{port} (Connection refused)" in caplog.text
    assert "Traceback" not in caplog.text + result.output
    assert not list((tmp_path / "state" / "home").glob("*/worker.log")), "no host was started"


def test_check_says_where_the_master_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))  # so that Spark is not started for the plans
    path, port = written(tmp_path)
    result = CliRunner().invoke(main, ["check", str(path)])
    assert result.exit_code == 1
    assert f"{path}:3: private.spark.master: no Spark master answers at 127.0.0.1:{port}" in result.output
