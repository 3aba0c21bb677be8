"""An S3 sink is killed, its requests fail, and their answers are lost: each result is there once."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gateway.connectors.position import Position
from gateway.sinks.base import FencedError, SinkUnavailableError
from gateway.sinks.parts import s3manifest
from gateway.sinks.parts.s3manifest import PAGE_PARTS, visible_parts
from gateway.sinks.parts.s3sink import S3Sink
from infra.objectstore.folder import FolderStore
from infra.objectstore.s3 import S3Store
from infra.statefiles import StateError
from tests.connectors.s3_reader import read_results
from tests.connectors.s3_server import DEADLINE_S, Fault, Request, S3Server, faulty
from tests.connectors.s3_sink_writer import PREFIX
from tests.connectors.sink_contract import SEED, at, release, row

KILLS = 9
KEPT_VERSIONS = 16


class Writer:
    """Runs ``s3_sink_writer`` once."""

    def __init__(self, endpoint: str, bucket: str, epoch: int, count: int, failpoints: str = "") -> None:
        program = Path(__file__).with_name("s3_sink_writer.py")
        folders = os.pathsep.join(str(folder) for folder in (program.parent, program.parents[2]))
        environment = {**os.environ, "PYTHONPATH": folders, "SPILLWAY_FAILPOINTS": failpoints}
        command = [sys.executable, str(program), endpoint, bucket, str(epoch), str(count)]
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self) -> int:
        said, _ = self.process.communicate(timeout=2 * DEADLINE_S)
        assert self.process.returncode in (0, -signal.SIGKILL), said.decode()
        return self.process.returncode


@dataclass
class Killer:
    """Decides what happens to the requests of the current writer; may kill the writer at one of them."""

    chance: random.Random
    writer: Writer | None = None
    kill_at: int = 0
    before: bool = False

    def kill(self) -> None:
        assert self.writer is not None
        os.kill(self.writer.process.pid, signal.SIGKILL)

    def fault(self, request: Request) -> Fault:
        if request.count == self.kill_at:
            if not self.before:
                return "answer lost and killed"
            self.kill()
            return "refused"
        faults: list[Fault] = ["500", "slow down", "answer lost", "refused"]
        return self.chance.choice(faults) if self.chance.randrange(24) >= 20 else ""


def test_killed_at_any_request_among_faults_each_result_is_there_once(s3_server: S3Server, bucket: str) -> None:
    """The proxy kills the writer before it passes a request on, or after; other requests fail or are not answered."""
    print(f"seed {SEED}")
    killer = Killer(random.Random(SEED))
    with faulty(s3_server, killer.fault) as proxy:
        proxy.kill = killer.kill
        for epoch in range(1, KILLS + 1):
            place, failpoints = killer.chance.randint(1, 30), ""
            killer.kill_at, killer.before = proxy.count + place, epoch % 2 == 0
            if epoch % 3 == 0:
                killer.kill_at = 0
                failpoints = f"sink.commit.{'visible' if killer.before else 'prepared'}=kill@{place % 8 + 1}"
            killer.writer = Writer(proxy.endpoint, bucket, epoch, 10_000, failpoints)
            assert killer.writer.end() == -signal.SIGKILL
            rows = read_results(s3_server.client(), bucket, PREFIX)
            assert rows == [row(n) for n in range(len(rows))]
        killer.kill_at = 0
        assert Writer(proxy.endpoint, bucket, KILLS + 1, len(rows) + 50).end() == 0
        assert proxy.faults > KILLS // 2
    found = read_results(s3_server.client(), bucket, PREFIX)
    assert len(found) >= len(rows) + 50
    assert found == [row(n) for n in range(len(found))]
    store = S3Store(bucket, prefix=PREFIX, endpoint=s3_server.endpoint)
    assert len(list(store.list("manifest/"))) <= KEPT_VERSIONS + 1
    assert len(list(store.list("parts/"))) - len(visible_parts(store)) <= KILLS


def folder_sink(folder: Path, epoch: int = 1, writer: str | None = None, page_parts: int = PAGE_PARTS) -> S3Sink:
    return S3Sink(
        lambda: FolderStore(folder),
        owner="me",
        epoch=epoch,
        writer=writer or f"w{epoch}",
        format="jsonl",
        ordered=True,
        page_parts=page_parts,
    )


def test_old_names_go_onto_pages_and_leftovers_go(tmp_path: Path) -> None:
    sink = folder_sink(tmp_path, page_parts=4)
    store = FolderStore(tmp_path)
    for seq in range(15):
        sink.commit([release(seq, seq)], at(seq))
    parts = visible_parts(store)
    assert [int(name.split("-")[1]) for name in parts] == list(range(15))
    assert len(list(store.list("pages/"))) == 3
    before = set(store.list(""))
    orphans = [
        "parts/0000000015-000000000015-000000000015-0000000001-abcdefabcdef.jsonl",
        "pages/0000000012-0000000001-ff",
    ]
    later = "parts/0000000015-000000000015-000000000015-0000000009-abcdefabcdef.jsonl"
    for name in [*orphans, later]:
        store.put(name, b"")
    again = folder_sink(tmp_path, epoch=2)
    after = set(store.list(""))
    assert {name for name in before - after if not name.startswith("manifest/")} == set()
    assert not after & set(orphans)
    assert later in after
    again.commit([release(15, 15)], at(15))
    assert len(visible_parts(store)) == 16


def test_a_lost_commit_that_is_cut_otherwise_counts_once(s3_server: S3Server, bucket: str) -> None:
    """Every answer to the write of the manifest is lost, then all requests fail; the next commit has more releases."""

    def store(endpoint: str) -> S3Store:
        return S3Store(bucket, prefix="cut", endpoint=endpoint)

    lost = False

    def fault(request: Request) -> Fault:
        nonlocal lost
        if request.method == "PUT" and "/manifest/" in request.path and request.path.endswith("2"):
            lost = True
            return "answer lost"
        return "503" if lost else ""

    with faulty(s3_server, fault) as proxy:
        sink = S3Sink(lambda: store(proxy.endpoint), owner="me", epoch=1, writer="w", format="jsonl", ordered=True)
        with pytest.raises(SinkUnavailableError):
            sink.commit([release(0, 4)], at(4))
        proxy.fault = lambda _: ""
        assert list(sink.committed) == []
        sink.commit([release(0, 4), release(5, 9)], at(9))
        assert list(sink.committed) == [(0, 9)]
    direct = store(s3_server.endpoint)
    assert read_results(s3_server.client(), bucket, "cut") == [row(n) for n in range(10)]
    # The try that came second was given up, and its part is gone.
    assert list(direct.list("parts/")) == visible_parts(direct)


def test_an_equal_epoch_or_an_older_one_cannot_open(tmp_path: Path) -> None:
    folder_sink(tmp_path, epoch=5).commit([release(0, 4)], Position())
    for epoch in (4, 5):
        with pytest.raises(FencedError, match="taken over by epoch 5"):
            folder_sink(tmp_path, epoch=epoch, writer="a copy")
    folder_sink(tmp_path, epoch=5)


def test_what_is_not_a_sinks_is_refused(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    store.put("parts/0000000000-x", b"")
    with pytest.raises(StateError, match="no manifest: choose an empty prefix"):
        folder_sink(tmp_path)
    store.put("manifest/000000000001", b"{]")
    with pytest.raises(StateError, match="cannot be read"):
        folder_sink(tmp_path)


def test_names_tell_their_epoch() -> None:
    unique: Any = s3manifest.unique_name(7)
    assert s3manifest.epoch_of(f"0000000001-000000000000-000000000004-{unique}.late.jsonl") == 7
    assert s3manifest.epoch_of(f"0000000001-{unique}") == 7
    assert s3manifest.epoch_of("README.md") == -1
