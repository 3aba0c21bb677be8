"""A gateway whose disk fails is not ready while it cannot write, and is ready again by itself; results are complete."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

import msgspec
import pytest

from engines.email.mailbox import Mail
from tests.connectors.ports import free_port
from tests.e2e.harness import MEMORY_MAX_BYTES, Gateway, email_query, expected_rows, until, write_mail

FAILPOINTS = (
    "runlog.append.written=enospc@3-6 deadletters.append.written=eio@1-2 "
    "sink.commit.prepared=enospc@2-4 runlog.append.before=eio@9-11"
)
COUNT = 1500
LOOPS = 12
STANDS_S = 5.0


def readiness(address: str) -> tuple[int, str]:
    """Return the answer of /ready; (0, "") while nothing answers."""
    try:
        with urllib.request.urlopen(f"http://{address}/ready", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()
    except OSError:
        return 0, ""


def listening(gateway: Gateway) -> str:
    """Give the gateway's API a port that the test knows; return its address."""
    address = f"127.0.0.1:{free_port()}"
    gateway.config.write_text(gateway.config.read_text().replace("127.0.0.1:0", address))
    return address


def events_taken(address: str, query: str) -> int:
    """Return how many events the gateway has read from the source of a query."""
    with urllib.request.urlopen(f"http://{address}/status", timeout=60) as answer:
        return int(json.load(answer)["queries"][query]["events"])


@pytest.mark.timeout(900)
def test_it_is_not_ready_while_the_disk_fails_and_then_goes_on(
    tmp_path: Path, state_dir: Path, mails: list[Mail], monkeypatch: pytest.MonkeyPatch
) -> None:
    some = mails[:COUNT]
    write_mail(tmp_path / "mail.jsonl", some)
    with (tmp_path / "mail.jsonl").open("ab") as file:
        file.write(b"no mail\n")
    query = email_query(tmp_path, tmp_path / "mail.jsonl", "disk", replay={"rate": "300/s"})
    gateway = Gateway(tmp_path, state_dir, {"disk": query})
    address = listening(gateway)
    monkeypatch.setenv("SPILLWAY_FAILPOINTS", FAILPOINTS)
    gateway.start("--until-drained")
    seen: list[tuple[int, str]] = []

    def drained() -> bool:
        assert gateway.process is not None
        now = readiness(address)
        if now[0] and (not seen or seen[-1] != now):
            seen.append(now)
        return gateway.process.poll() is not None

    until(drained, "the gateway ends")
    assert gateway.wait() == 0, gateway.tail()
    failed = [i for i, (code, text) in enumerate(seen) if code == 503 and "failpoint" in text]
    assert failed, seen
    assert (200, "running") in seen[failed[0] :], seen
    assert gateway.rows("disk") == expected_rows(some)
    letters = (state_dir / "queries" / "disk" / "dead-letters.jsonl").read_text().splitlines()
    assert len(letters) == 1


@pytest.mark.timeout(900)
def test_memory_is_bounded_while_the_sink_takes_nothing_and_then_all_of_it_comes(
    tmp_path: Path, state_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = [{"id": f"row {n}", "body": f"{n} " * 6000} for n in range(1000)]
    (tmp_path / "large.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(large))
    total = LOOPS * len(large)
    query = {
        "source": {"type": "file", "path": str(tmp_path / "large.jsonl"), "replay": {"loops": LOOPS, "id": "id"}},
        "schema": "id STRING, body STRING",
        "sql": "SELECT id, body FROM events",
        "sink": {"type": "file", "path": str(tmp_path / "out" / "stalled")},
        "qos": {"latency": "2s"},
        "switching": {"mode": "off"},
    }
    # One query may hold half of it: 96 MiB. Before the process has a single event it takes about 150 MiB.
    gateway = Gateway(tmp_path, state_dir, {"stalled": query}, memory="192MiB")
    address = listening(gateway)
    monkeypatch.setenv("SPILLWAY_FAILPOINTS", "sink.commit.prepared=enospc@1-1000000")
    gateway.start()
    try:
        until(lambda: readiness(address)[0] == 503 and "failpoint" in readiness(address)[1], "the sink takes nothing")
        taken = [(time.monotonic(), events_taken(address, "stalled"))]

        def stands() -> bool:
            now = (time.monotonic(), events_taken(address, "stalled"))
            if now[1] != taken[-1][1]:
                taken.append(now)
            return now[0] - taken[-1][0] > STANDS_S

        until(stands, "the source is held back")
        peak_bytes = gateway.peak_bytes()
        print(f"{taken[-1][1]} of {total} events taken, {peak_bytes >> 20} MiB at the most")
        assert taken[-1][1] < total
        assert peak_bytes < MEMORY_MAX_BYTES
    finally:
        gateway.kill()
    monkeypatch.delenv("SPILLWAY_FAILPOINTS")
    gateway.run_until_drained()
    ids = [row["id"] for row in gateway.rows("stalled")]
    assert len(ids) == total
    assert len(set(ids)) == total
