"""A second private engine host stands by: it takes over when the first one's Spark driver is killed."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from ruamel.yaml import YAML

from engines.email.mailbox import Mail
from tests.e2e.harness import (
    Gateway,
    email_query,
    expected_rows,
    expected_windows,
    metrics_query,
    until,
    write_mail,
)

TOOK = "a standby host is ready after"
READY = "a standby of the private engine host is ready"


def with_standby(folder: Path, name: str, mails: list[Mail]) -> Gateway:
    """A gateway with a separate state_dir, with a stateless query and a stateful one."""
    write_mail(folder / "mail.jsonl", mails)
    first: dict[str, Any] = email_query(folder, folder / "mail.jsonl", name, replay={"rate": "40/s"})
    queries = {name: first, f"{name}-metrics": metrics_query(folder, name, f"{name}-metrics")}
    gateway = Gateway(folder, folder / "state", queries, cloud={"max_vms": 0, "warm": False})
    document = YAML(typ="safe").load(gateway.config.read_text())
    document["private"]["standby"] = True
    with gateway.config.open("w") as file:
        YAML(typ="safe").dump(document, file)
    return gateway


def host_pids(gateway: Gateway) -> set[int]:
    """The processes of the private engine hosts."""
    records = [json.loads(path.read_text()) for path in (gateway.state_dir / "home").glob("vm-*.json")]
    return {record["pid"] for record in records}


def oldest_driver(state_dir: Path) -> psutil.Process:
    """The JVM of the engine host on which the queries are open."""
    drivers = [
        process
        for process in psutil.process_iter(["name", "cmdline"])
        if process.info["name"] == "java"
        and any(str(state_dir / "home") in word for word in process.info["cmdline"] or ())
    ]
    return min(drivers, key=lambda process: process.create_time())


@pytest.mark.timeout(900)
def test_a_killed_driver_is_replaced_by_the_host_that_stands_by(tmp_path: Path, mails: list[Mail]) -> None:
    mails = mails[:3000]  # 75 s of events: two hosts start meanwhile
    gateway = with_standby(tmp_path, "stood-by", mails)
    try:
        # Not until it is drained: a busy machine may need longer for its hosts than the mails last.
        gateway.start()
        until(lambda: READY in gateway.log.read_text(), "a host stands by")
        hosts = host_pids(gateway)
        gateway.kill()
        gateway.start()
        until(lambda: gateway.log.read_text().count(READY) == 2, "the killed gateway's standby host is found again")
        assert host_pids(gateway) == hosts
        until(lambda: len(gateway.parts("stood-by-metrics")) > 1, "the stateful query has answered")
        oldest_driver(gateway.state_dir).send_signal(signal.SIGKILL)
        killed_s, before = time.monotonic(), len(gateway.parts("stood-by"))
        all_there = gateway.rows("stood-by") == expected_rows(mails)
        until(lambda: TOOK in gateway.log.read_text(), "the standby host has the queries")
        until(lambda: all_there or len(gateway.parts("stood-by")) > before, "results come again")
        print(f"resumed {time.monotonic() - killed_s:.1f} s after the driver was killed")
        until(lambda: gateway.log.read_text().count(READY) == 3, "another host stands by")
        gateway.kill()
        gateway.run_until_drained()
        assert gateway.rows("stood-by") == expected_rows(mails)
        assert gateway.rows("stood-by-metrics") == expected_windows(mails)
    finally:
        end_all(gateway)


def end_all(gateway: Gateway) -> None:
    """End the gateway and both hosts, whatever the outcome of the test."""
    if gateway.process is not None and gateway.process.poll() is None:
        gateway.kill()
    for process in psutil.process_iter(["cmdline"]):
        if any(str(gateway.state_dir / "home") in word for word in process.info["cmdline"] or ()):
            os.kill(process.pid, signal.SIGKILL)
