"""What ``status`` and ``why`` answer when no gateway runs: what the last one left on disk."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway import start
from gateway.cli import main
from gateway.steering.keeping import kept_on_disk
from gateway.views.lastseen import LAST_SEEN, read_last_seen
from gateway.views.logfile import as_text
from tests.connectors.ports import free_port
from tests.gateway.daemon_site import Site, configured, no_texts
from tests.support.waiting import until

__all__ = ["no_texts"]


def said(command: str, *arguments: str | Path) -> Result:
    words = [command, *map(str, arguments)]
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, words)


async def ran(site: Site) -> None:
    """Run a gateway until it has decided something, and end it in order."""
    async with kept_on_disk(site.daemon.parts):
        running = asyncio.create_task(site.daemon.run(False, None))
        await until(lambda: running.done() or site.daemon.phase == "running")
        await until(lambda: json.loads(site.seeing.why()) != {})
        site.query.idle = True
        site.daemon.parts.drain()
        assert await running == 0


async def test_after_a_run_the_last_figures_and_decisions_are_shown(tmp_path: Path) -> None:
    site = Site(tmp_path, port=free_port())
    config = tmp_path / "config.yaml"
    assert said("status", config).exit_code == 1, "nothing is known before the first run"
    assert said("why", config).output.startswith("nothing was decided so far")
    await ran(site)
    shown = said("status", config)
    assert shown.exit_code == 0, shown.output
    first, heading, second, _, heads, row, *_ = shown.output.splitlines()
    assert first.startswith("no gateway answers at http://127.0.0.1:")
    assert heading.endswith(" UTC, when a gateway ended")
    assert second == "not running, 1 queries, 0 of 1 VMs"
    assert heads.split()[:2] == ["query", "state"]
    assert row.split()[:2] == ["words", "ended"]
    assert "spent today: 0.0000 USD of 5 USD" in shown.output
    as_json = said("status", config, "--json")
    assert json.loads(as_json.stdout)["phase"] == "not running"
    assert list(json.loads(as_json.stdout)["queries"]) == ["words"]
    listed = said("why", config)
    assert (listed.exit_code, listed.output.split()[:5]) == (0, ["at", "(UTC)", "query", "decision", "because"])
    assert " words " in listed.output.splitlines()[1]
    explained = said("why", config, "words")
    assert explained.exit_code == 0
    assert "this is the last decision that is on disk" in explained.stderr
    assert "\n  Seen: latency " in explained.stdout


async def test_a_gateway_that_was_killed_has_left_what_it_wrote_last(tmp_path: Path) -> None:
    site = Site(tmp_path, port=free_port())
    state_dir = tmp_path / "state"
    async with kept_on_disk(site.daemon.parts, each_s=0.01):
        running = asyncio.create_task(site.daemon.run(False, None))
        await until(lambda: running.done() or site.daemon.phase == "running")
        await until(lambda: read_last_seen(state_dir) is not None)
        left = (state_dir / LAST_SEEN).read_bytes()
        site.query.idle = True
        site.daemon.parts.drain()
        assert await running == 0
    (state_dir / LAST_SEEN).write_bytes(left)
    shown = said("status", tmp_path / "config.yaml")
    assert "that one did not end in order\nnot running, " in shown.output


async def test_a_gateway_that_did_not_get_ready_leaves_what_an_earlier_one_wrote(tmp_path: Path) -> None:
    site = Site(tmp_path, port=free_port())
    state_dir = tmp_path / "state"
    (state_dir / LAST_SEEN).write_bytes(b"of an earlier one")
    assert site.daemon.phase == "starting"
    async with kept_on_disk(site.daemon.parts):
        pass
    assert (state_dir / LAST_SEEN).read_bytes() == b"of an earlier one"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    Site(tmp_path, port=free_port())
    (tmp_path / "state" / LAST_SEEN).write_bytes(b"{")
    shown = said("status", tmp_path / "config.yaml")
    assert shown.exit_code == 1
    assert f"{tmp_path / 'state' / LAST_SEEN} cannot be read" in shown.output


def test_why_a_gateway_ended_is_in_its_log(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = configured(tmp_path, port=taken.getsockname()[1])
        assert start.run(config, until_drained=False, report=None) == 2
    (line,) = config.gateway.log_file.read_text().splitlines()
    assert f" ERROR gateway.api.listen: cannot listen on 127.0.0.1:{config.gateway.api.port}" in as_text(line)
    assert not (tmp_path / "state" / LAST_SEEN).exists()


async def test_a_full_disk_ends_no_gateway(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    site = Site(tmp_path, port=free_port())
    (tmp_path / "state").mkdir(exist_ok=True)
    (tmp_path / "state" / LAST_SEEN).mkdir()  # so it cannot be replaced
    await ran(site)
    assert "what spillway status shows after the end was not written" in caplog.text
