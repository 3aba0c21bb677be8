"""The same rows as at one site, once and in order, whichever process is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engines.email.mailbox import Mail
from engines.email.queries import EMAIL_SQL, SCHEMA_DDL
from tests.e2e.harness import (
    DEADLINE_S,
    EAGER,
    METRICS_RUN_EVENTS,
    Gateway,
    email_query,
    expected_rows,
    expected_windows,
    metrics_query,
    processes_with,
    rows_in,
    until,
    write_mail,
)

EXAMPLE = Path(__file__).parents[2] / "examples" / "email.yaml"

REPLAY = {"rate": "300/s"}
# Where the VM must get some of 4,000 events: on a busy machine its host needs 8 s to open a query.
SLOWLY = {"rate": "130/s"}
# Where nothing waits for the VM either: on a busy machine its Spark needs 20 s to start.
MORE_SLOWLY = {"rate": "60/s"}


def _more_parts(gateway: Gateway, count: int) -> bool:
    return len(gateway.parts("gateway-killed")) > count


def both_queries(folder: Path, name: str, mails: list[Mail], replay: dict[str, str] = REPLAY) -> dict[str, Any]:
    write_mail(folder / "mail.jsonl", mails)
    first = email_query(folder, folder / "mail.jsonl", name, replay=replay, switching=EAGER)
    return {name: first, f"{name}-metrics": metrics_query(folder, name, f"{name}-metrics")}


def assert_exact(gateway: Gateway, name: str, mails: list[Mail]) -> None:
    assert gateway.rows(name) == expected_rows(mails)
    assert gateway.rows(f"{name}-metrics") == expected_windows(mails)
    assert gateway.vm_pids() == []


def sends_to_cloud(gateway: Gateway) -> bool:
    return "% to vm-" in gateway.log.read_text()


def plans_several_runs(checkpoint: Path) -> bool:
    """Whether the micro-batch that Spark has planned but not committed has more runs than a new lane has room for."""
    batches = [int(file.name) for file in (checkpoint / "offsets").glob("[0-9]*")]
    committed = [int(file.name) for file in (checkpoint / "commits").glob("[0-9]*")]
    if not committed or max(batches) == max(committed):
        return False
    ends = [(checkpoint / "offsets" / str(batch)).read_text().splitlines() for batch in sorted(batches)[-2:]]
    before, planned = (json.loads(lines[-1])["at"] if lines else 0 for lines in ends)
    return bool(planned - before > 2 * METRICS_RUN_EVENTS)


def test_the_example_gives_the_rows_of_batch_spark(tmp_path: Path, mails: list[Mail], spark: SparkSession) -> None:
    (tmp_path / "examples").mkdir()
    config = Path(shutil.copy(EXAMPLE, tmp_path / "examples"))
    write_mail(tmp_path / "mail.jsonl", mails)
    environment = {**os.environ, "SPILLWAY_MAIL": str(tmp_path / "mail.jsonl")}
    command = [sys.executable, "-m", "gateway", "run", str(config), "--until-drained"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert ended.returncode == 0, ended.stderr[-6000:]
    spark.read.schema(SCHEMA_DDL).json(str(tmp_path / "mail.jsonl")).createOrReplaceTempView("events")
    batch = [row.asDict() for row in spark.sql(EMAIL_SQL).collect()]
    assert sorted(rows_in(tmp_path / "out" / "email-processor"), key=repr) == sorted(batch, key=repr)
    assert rows_in(tmp_path / "out" / "email-metrics") == expected_windows(mails)
    assert processes_with(str(tmp_path)) == []


def test_two_sites_give_the_rows_of_one(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    gateway = Gateway(tmp_path, state_dir, both_queries(tmp_path, "plain", mails, MORE_SLOWLY))
    gateway.run_until_drained()
    totals = gateway.totals()
    assert totals["vms"]["started"] >= 1
    assert totals["vms"]["stopped"] == totals["vms"]["started"]
    assert 0 < totals["wan_bytes"]["sent"] < 0.6 * totals["wan_bytes"]["raw"]
    assert totals["vms"]["sent_bytes"] > totals["wan_bytes"]["sent"], "frames and heartbeats cost too"
    assert totals["vms"]["received_bytes"] > 0
    assert_exact(gateway, "plain", mails)


def test_a_killed_worker_loses_nothing(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    gateway = Gateway(tmp_path, state_dir, both_queries(tmp_path, "worker-killed", mails, SLOWLY))
    gateway.start("--until-drained")
    until(lambda: sends_to_cloud(gateway) and bool(gateway.vm_pids()), "events go to the VM")
    os.kill(gateway.vm_pids()[0], signal.SIGKILL)
    assert gateway.wait() == 0, gateway.tail()
    assert "VmLost" in gateway.log.read_text() or "was lost" in gateway.log.read_text()
    assert_exact(gateway, "worker-killed", mails)


def test_a_killed_gateway_goes_on_where_it_was(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    gateway = Gateway(tmp_path, state_dir, both_queries(tmp_path, "gateway-killed", mails))
    seen = 0
    for _ in range(3):
        gateway.start("--until-drained")
        until(partial(_more_parts, gateway, seen + 1), "two more parts are there")
        gateway.kill()
        seen = len(gateway.parts("gateway-killed"))
    gateway.run_until_drained()
    assert_exact(gateway, "gateway-killed", mails)


def test_a_killed_private_engine_is_started_again(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    gateway = Gateway(tmp_path, state_dir, both_queries(tmp_path, "home-killed", mails))
    gateway.start("--until-drained")
    checkpoint = state_dir / "queries" / "home-killed-metrics" / "checkpoints" / "1"
    until(lambda: plans_several_runs(checkpoint), "a micro-batch of several runs is under way")
    os.kill(gateway.home_pid(), signal.SIGKILL)
    assert gateway.wait() == 0, gateway.tail()
    assert_exact(gateway, "home-killed", mails)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stopped_gateway_delivers_what_it_read_and_gives_every_vm_back(
    tmp_path: Path, state_dir: Path, mails: list[Mail], number: signal.Signals
) -> None:
    name = f"stopped-{number.name.lower()}"
    gateway = Gateway(tmp_path, state_dir, both_queries(tmp_path, name, mails, SLOWLY))
    gateway.start()
    until(lambda: sends_to_cloud(gateway), "events go to the VM")
    gateway.kill(number)
    assert gateway.wait() == 0, gateway.tail()
    assert gateway.vm_pids() == []
    totals = gateway.totals()
    assert totals["vms"]["started"] == totals["vms"]["stopped"] >= 1
    delivered = gateway.rows(name)
    assert delivered == expected_rows(mails)[: len(delivered)]
    gateway.run_until_drained()
    assert_exact(gateway, name, mails)
