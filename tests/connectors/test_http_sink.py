"""What the HTTP sink sends, and how it handles the answers."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gateway.sinks.base import SinkError, SinkUnavailableError
from infra import failpoints
from infra.clock import SystemClock
from tests.connectors.http_taker import Taker, sink_to, taker
from tests.connectors.sink_contract import at, release, row

DEADLINE_S = 60.0


class HastyClock(SystemClock):
    """Records how long each wait would be, and continues at once."""

    def __init__(self) -> None:
        self.waited_s: list[float] = []

    async def sleep_until(self, at_s: float) -> None:
        self.waited_s.append(max(0.0, at_s - self.now()))


async def test_each_run_with_results_is_one_post_with_a_key_of_its_own(tmp_path: Path) -> None:
    async with taker() as server:
        sink = sink_to(server.url, tmp_path, token="secret")
        await sink.open()
        await sink.commit([release(0, 4), release(5, 9, keep=100), release(10, 11)], at(11))
        assert server.keys == ["me-0-4", "me-10-11"]
        assert [json.loads(line) for line in server.bodies[1].splitlines()] == [row(10), row(11)]
        assert server.bodies[1].endswith(b"\n")
        assert server.headers["Authorization"] == "Bearer secret"
        assert server.headers["Content-Type"] == "application/x-ndjson"
        assert list(sink.committed) == [(0, 11)]
        await sink.close()


@pytest.mark.parametrize("status", [408, 409, 425, 429, 500, 502, 503, 599])
async def test_not_now_is_tried_again_with_the_same_key(tmp_path: Path, status: int) -> None:
    async with taker() as server:
        sink = sink_to(server.url, tmp_path)
        await sink.open()
        server.answers = [(status, {}, "come\nback")]
        with pytest.raises(SinkUnavailableError, match=f"answered {status} come back"):
            await sink.commit([release(0, 4)], at(4))
        await sink.commit([release(0, 4)], at(4))
        assert server.keys == ["me-0-4"] * 2
        assert len(server.bodies) == 1
        await sink.close()


@pytest.mark.parametrize(
    ("status", "told"),
    [
        (400, "the receiver rejects them"),
        (401, "set the right token"),
        (403, "set the right token"),
        (404, "rejects them"),
        (413, "lower runs.max_events"),
        (422, "rejects them"),
        (301, "correct sink.url"),
        (307, "correct sink.url"),
    ],
)
async def test_never_is_told_with_what_to_do(tmp_path: Path, status: int, told: str) -> None:
    async with taker() as server:
        sink = sink_to(server.url, tmp_path)
        await sink.open()
        server.answers = [(status, {"Location": server.url}, "because")]
        with pytest.raises(SinkError, match=rf"answered {status} because to the results of events 0-4: .*{told}"):
            await sink.commit([release(0, 4)], at(4))
        assert len(server.keys) == 1
        await sink.close()


async def test_what_was_taken_before_a_failure_is_not_sent_again(tmp_path: Path) -> None:
    async with taker() as server:
        sink = sink_to(server.url, tmp_path)
        await sink.open()
        await sink.commit([release(0, 1)], at(1))
        server.answers = [(503, {}, "")]
        with pytest.raises(SinkUnavailableError):
            await sink.commit([release(2, 4), release(5, 9)], at(9))
        server.answers = []
        await sink.commit([release(2, 4)], at(4))
        server.answers = []
        assert server.keys == ["me-0-1", "me-2-4", "me-2-4"]
        again = sink_to(server.url, tmp_path)
        await again.open()
        assert list(again.committed) == [(0, 4)]
        await again.commit([release(2, 4), release(5, 9)], at(9))
        assert server.keys[3:] == ["me-5-9"]
        await sink.close()
        await again.close()


@pytest.mark.parametrize(
    ("said", "wait_s"), [("7", 7.0), ("100000", 60.0), ("0", 0.0), ("Wed, 21 Oct 2026 07:28:00 GMT", 0.0), ("-5", 0.0)]
)
async def test_a_receiver_is_left_alone_as_long_as_it_says_up_to_a_bound(
    tmp_path: Path, said: str, wait_s: float
) -> None:
    clock = HastyClock()
    async with taker() as server:
        sink = sink_to(server.url, tmp_path, clock=clock)
        await sink.open()
        server.answers = [(429, {"Retry-After": said}, "")]
        with pytest.raises(SinkUnavailableError):
            await sink.commit([release(0, 4)], at(4))
        await sink.commit([release(0, 4)], at(4))
        assert clock.waited_s[-1] == pytest.approx(wait_s, abs=5.0)
        assert clock.waited_s[-1] <= wait_s
        await sink.close()


async def test_a_receiver_that_is_away_and_comes_back(tmp_path: Path) -> None:
    async with taker() as server:
        url = server.url
    sink = sink_to(url, tmp_path)
    await sink.open()
    with pytest.raises(SinkUnavailableError, match=url):
        await sink.commit([release(0, 4)], at(4))
    async with taker(int(url.split(":")[2].split("/")[0])) as server:
        await sink.commit([release(0, 4)], at(4))
        assert server.keys == ["me-0-4"]
    await sink.close()


async def test_a_url_that_is_none_is_told(tmp_path: Path) -> None:
    sink = sink_to("http://:x/", tmp_path)
    await sink.open()
    with pytest.raises(SinkError, match="is not a URL"):
        await sink.commit([release(0, 4)], at(4))
    await sink.close()


async def test_a_progress_that_cannot_be_saved_does_not_send_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    async with taker() as server:
        sink = sink_to(server.url, tmp_path)
        await sink.open()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            with pytest.raises(OSError, match="No space"):
                await sink.commit([release(0, 4)], at(4))
        assert list(sink.committed) == []
        await sink.commit([release(0, 4)], at(4))
        assert list(sink.committed) == [(0, 4)]
        assert server.keys == ["me-0-4"]
        await sink.close()


@pytest.mark.parametrize(("name", "sent"), [("prepared", 1), ("visible", 2)])
async def test_a_failure_at_a_named_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, sent: int
) -> None:
    async with taker() as server:
        sink = sink_to(server.url, tmp_path)
        await sink.open()
        with failpoints.installed(f"sink.commit.{name}=eio@2"), pytest.raises(OSError, match="failpoint"):
            await sink.commit([release(0, 4), release(5, 9)], at(9))
        assert len(server.keys) == sent
        await sink.commit([release(0, 4), release(5, 9)], at(9))
        assert server.keys == ["me-0-4", "me-5-9"]
        await sink.close()


async def deliver_in_process(server: Taker, folder: Path, rule: str) -> int:
    """Commit runs 0 to 9 in a separate process; return how it ended."""
    script = Path(__file__).with_name("http_sink_process.py")
    environment = {**os.environ, "SPILLWAY_FAILPOINTS": rule}
    process = subprocess.Popen([sys.executable, "-W", "error", str(script), server.url, str(folder)], env=environment)
    give_up_s = time.monotonic() + DEADLINE_S
    while process.poll() is None:
        assert time.monotonic() < give_up_s
        await asyncio.sleep(0.01)
    return process.returncode


@pytest.mark.parametrize("name", ["prepared", "visible"])
async def test_killed_nothing_is_missing_and_what_comes_twice_has_the_same_key(tmp_path: Path, name: str) -> None:
    async with taker() as server:
        for time_ in (1, 3, 2):
            assert await deliver_in_process(server, tmp_path, f"sink.commit.{name}=kill@{time_}") == -9
        assert await deliver_in_process(server, tmp_path, "") == 0
        by_key = dict(zip(server.keys, server.bodies, strict=True))
        assert all(by_key[key] == body for key, body in zip(server.keys, server.bodies, strict=True))
        found = [json.loads(line)["id"] for body in by_key.values() for line in body.splitlines()]
        assert found == list(range(50))
        sent_before = len(server.keys)
        assert await deliver_in_process(server, tmp_path, "") == 0
        assert len(server.keys) == sent_before
