"""The daemon's own decisions, with engine hosts and queries that the test controls."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from gateway import start as running
from gateway.config import Config
from gateway.core.decide.scheduler import Scheduler
from gateway.hosts.connection import QueryRefusedError
from gateway.hosts.rotation import RotationRefusedError
from gateway.query.supervision.supervision import NoQueryRunsError
from infra.clouds.base import BootError
from infra.rows.base import SourceError
from infra.statefiles import owned
from policies.signals import Command, Event, SlotEnded, StopAll
from tests.gateway.daemon_site import Site, configured, no_texts, site
from tests.leaping_clock import LeapingClock
from tests.support.waiting import until

__all__ = ["no_texts", "site"]


async def test_a_drained_gateway_ends_with_nothing_left(site: Site) -> None:
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    site.query.drained = site.query.idle = True
    assert await running == 0
    assert site.said == ["connect", "start", "stop reading", "stop", "end host", "close cloud"]
    assert site.home.links[0].closed_with == "the gateway stops"


async def test_certificates_are_renewed_while_it_runs_and_not_before(site: Site) -> None:
    with pytest.raises(RotationRefusedError, match="the gateway is starting: retry when it is running"):
        await site.acting.rotate_certificates()
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    with pytest.raises(RotationRefusedError, match="home did not take new certificates: cannot reach home-1"):
        await site.acting.rotate_certificates()
    site.query.drained = site.query.idle = True
    assert await running == 0


async def test_slots_go_on_while_a_stopped_gateway_drains(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[object] = []
    handle = Scheduler.handle

    def noting(scheduler: Scheduler, event: Event) -> list[Command]:
        events.append(event)
        return handle(scheduler, event)

    monkeypatch.setattr(Scheduler, "handle", noting)
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: site.daemon.phase == "running")
    os.kill(os.getpid(), signal.SIGTERM)
    await until(lambda: site.daemon.phase == "stopping")
    before = len(events)
    await until(lambda: len(events) > before + 3)
    assert all(isinstance(event, SlotEnded) for event in events[before:])
    site.query.idle = True
    assert await running == 0
    assert sum(isinstance(event, StopAll) for event in events) == 1


@pytest.mark.parametrize("keep_hosts", [False, True])
async def test_a_gateway_told_to_stop_before_it_is_ready_ends_at_once(tmp_path: Path, keep_hosts: bool) -> None:
    site = Site(tmp_path, keep_hosts=keep_hosts)
    site.home.goes.clear()
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: site.said == ["connect"])
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 0
    assert site.said[1:] == (["stop"] if keep_hosts else ["stop", "end host", "close cloud"])


async def test_a_query_that_is_refused_ends_the_start_and_leaves_no_host(site: Site) -> None:
    site.query.start_fails = QueryRefusedError("home refuses words: there is no column bdoy")
    with pytest.raises(NoQueryRunsError, match="query words: home refuses words: there is no column bdoy"):
        await site.daemon.run(False, None)
    assert site.said == ["connect", "stop", "stop", "end host", "close cloud"]


async def test_a_mistake_of_our_own_while_running_leaves_nothing_either(site: Site) -> None:
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: site.daemon.phase == "running")

    def break_down(*_: object, **__: object) -> tuple[()]:
        raise ZeroDivisionError("a slot of no length")

    site.profiler.end_slot = break_down
    with pytest.raises(ZeroDivisionError):
        await running
    assert site.said[-3:] == ["stop", "end host", "close cloud"]


async def test_a_lost_home_host_is_started_again(site: Site) -> None:
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    site.home.refusals.append(BootError("not now"))
    site.home.links[0].lose("kill -9")
    await until(lambda: "restart home" in site.said)
    assert sorted(site.said[2:4]) == ["connect", "lose home"]
    assert site.said[4:] == ["end host", "connect", "restart home"]
    site.query.drained = site.query.idle = True
    assert await running == 0


async def test_a_query_that_fails_is_opened_again_on_the_same_host(site: Site, tmp_path: Path) -> None:
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    assert site.seeing.trouble_of("words") == ""
    site.query.fails = SourceError("in.jsonl is damaged")
    await until(lambda: site.seeing.trouble != "")
    assert site.seeing.trouble == "query words: failed: in.jsonl is damaged"
    assert site.seeing.trouble_of("words") == "failed: in.jsonl is damaged"
    told = json.loads(site.seeing.status())["queries"]["words"]
    assert (told["state"], told["reason"], told["failures"]) == ("failed", "in.jsonl is damaged", 1)
    await until(lambda: site.said.count("start") == 2)
    assert site.said == ["connect", "start", "stop", "start"]
    site.query.drained = site.query.idle = True
    assert await running == 0


async def test_the_status_says_what_keeps_a_query_at_home(site: Site) -> None:
    site.query.stays_home = "its results contain text, which is private"
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    told = json.loads(site.seeing.status())["queries"]["words"]
    assert told["stays_home"] == site.query.stays_home
    assert (told["data_path"], told["data_path_why"]) == ("gateway", "private.data_path says so")
    site.query.drained = site.query.idle = True
    assert await running == 0


async def test_until_drained_ends_with_a_failure_where_a_query_fails_again_and_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, more="    on_failure: {restart: 200ms..1s}\n")
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    for failure in range(1, 4):
        await until(lambda failure=failure: site.said.count("start") == failure and site.query.started)  # type: ignore[misc]
        site.query.fails = SourceError("in.jsonl is damaged")
        await until(lambda: not site.query.started)
    assert await running == 1
    assert caplog.records[-1].getMessage() == (
        "query words failed, its undelivered events are kept: in.jsonl is damaged"
    )


async def test_a_home_host_that_cannot_be_launched_any_more_ends_only_a_gateway_that_is_to_drain(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, clock=LeapingClock())
    running = asyncio.create_task(site.daemon.run(True, None))
    await until(lambda: site.daemon.phase == "running")
    site.home.refusals = [BootError("no memory") for _ in range(100)]
    site.home.links[0].lose("out of memory")
    assert await running == 1
    assert "the private engine host cannot be launched: no memory" in caplog.records[-1].getMessage()


def test_state_of_a_removed_query_is_warned_of_with_its_folder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "state" / "queries" / "gone").mkdir(parents=True)
    running.warn_of_removed_queries(configured(tmp_path))
    told = [record.getMessage() for record in caplog.records if "not in the config" in record.getMessage()]
    assert len(told) == 1
    assert str(tmp_path / "state" / "queries" / "gone") in told[0]


async def test_a_machine_that_is_not_given_back_is_no_success(site: Site) -> None:
    site.actuator.reaper.not_terminated["i-1"] = "vm-1 (i-1)"
    site.query.drained = site.query.idle = True
    assert await site.daemon.run(True, None) == 1


async def test_a_gateway_that_cannot_deliver_ends_after_its_drain_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    site = Site(tmp_path, drain="300ms")
    running = asyncio.create_task(site.daemon.run(False, None))
    await until(lambda: site.daemon.phase == "running")
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 1
    assert "not all was delivered within gateway.drain_timeout: the rest is delivered after the next" in caplog.text


async def test_status_before_queries_are_open(site: Site) -> None:
    status = json.loads(site.seeing.status())
    assert (status["phase"], status["vms"], status["queries"]) == ("starting", {}, {})
    assert status["money"]["usd"] == 0


def run(config: Config) -> int:
    return running.run(config, until_drained=True, report=None)


def test_a_port_in_use_is_a_sentence_and_bad_input(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(configured(tmp_path, port=port)) == 2
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert f"cannot listen on 127.0.0.1:{port}" in record.getMessage()
    assert record.exc_info is None


def test_a_state_dir_that_cannot_be_is_a_sentence(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    assert run(configured(tmp_path, state="file/state")) == 1
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert "file/state: Not a directory; check that this user may read and write there" in record.getMessage()


def test_a_state_dir_of_another_gateway_is_bad_input(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = configured(tmp_path)
    with owned(config.gateway.state_dir):
        assert run(config) == 2
    assert "is in use by another gateway" in caplog.text


def _processes(text: str) -> list[psutil.Process]:
    return [p for p in psutil.process_iter(["cmdline"]) if any(text in word for word in p.info["cmdline"] or ())]


def test_sigterm_while_the_engine_host_starts_leaves_no_process(tmp_path: Path) -> None:
    configured(tmp_path)
    command = [sys.executable, "-m", "gateway", "run", str(tmp_path / "config.yaml")]
    hosts: Callable[[], list[psutil.Process]] = lambda: _processes(str(tmp_path / "state" / "home"))  # noqa: E731
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as gateway:
        asyncio.run(until(lambda: bool(hosts()) or gateway.poll() is not None))
        gateway.send_signal(signal.SIGTERM)
        said = gateway.communicate(timeout=120)[0]
    assert gateway.returncode == 0, said
    assert "stopped before it was ready" in said
    assert hosts() == []
