"""What systemd is told, and the unit that it reads."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.service.servicemanager import ServiceManager

UNIT = Path(__file__).parents[2] / "docker" / "systemd" / "spillway.service"


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(10)
        yield manager


def environ(systemd: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": systemd.getsockname(), **more}


def test_each_phase_is_told_and_the_variables_are_taken_away(systemd: socket.socket) -> None:
    names = environ(systemd, WATCHDOG_USEC="3000000", WATCHDOG_PID=str(os.getpid()), HOME="/")
    manager = ServiceManager(names)
    assert names == {"HOME": "/"}
    for phase in ("starting", "standby", "running", "stopping"):
        manager.phase(phase)
    said = [systemd.recv(4096).decode() for _ in range(4)]
    assert said == [
        "STATUS=starting",
        "READY=1\nSTATUS=standby",
        "READY=1\nSTATUS=running",
        "STOPPING=1\nSTATUS=stopping",
    ]
    manager.reloading()
    word, at = systemd.recv(4096).decode().split("\n")
    assert word == "RELOADING=1"
    assert at.removeprefix("MONOTONIC_USEC=").isdigit()


def test_the_watchdog_hears_thrice_before_its_deadline(systemd: socket.socket) -> None:
    manager = ServiceManager(environ(systemd, WATCHDOG_USEC="3000000"))
    for tenth in range(31):
        manager.alive(tenth / 10)
    systemd.setblocking(False)
    assert [systemd.recv(4096) for _ in range(4)] == [b"WATCHDOG=1"] * 4
    with pytest.raises(BlockingIOError):
        systemd.recv(4096)


@pytest.mark.parametrize("more", [{}, {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}])
def test_a_watchdog_of_another_process_is_not_ours(systemd: socket.socket, more: dict[str, str]) -> None:
    ServiceManager(environ(systemd, **more)).alive(1.0)
    systemd.setblocking(False)
    with pytest.raises(BlockingIOError):
        systemd.recv(4096)


def test_without_a_manager_nothing_is_sent_and_a_lost_one_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ServiceManager({}).phase("running")
    assert not caplog.records
    ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).phase("running")
    assert "cannot be told READY=1" in caplog.text


def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    analyse = shutil.which("systemd-analyze")
    if analyse is None and not os.environ.get("CI"):
        pytest.skip("systemd is not installed")
    assert analyse is not None, "install systemd"
    there = tmp_path / UNIT.name
    there.write_text(UNIT.read_text().replace("/opt/spillway/bin/spillway", "/bin/true"))
    found = subprocess.run(
        [analyse, "verify", "--man=no", str(there)], capture_output=True, text=True, check=False, timeout=60
    )
    ours = [line for line in found.stderr.splitlines() if UNIT.name in line]
    assert (found.returncode, ours) == (0, [])
