"""What the service manager is told while the config is reloaded."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from gateway.reloading.reloader import Reloader
from gateway.reloading.triggers import ReloadTriggers
from infra.service.servicemanager import ServiceManager
from tests.reloading.running_gateway import Running
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until


class Manager:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def reloading(self) -> None:
        self.told.append("reloading")

    def phase(self, phase: str) -> None:
        self.told.append(phase)


@pytest.mark.parametrize(
    ("phase", "told"), [("running", ["reloading", "running"]), ("starting", []), ("standby", []), ("stopping", [])]
)
async def test_only_a_gateway_that_runs_reloads_for_the_manager(tmp_path: Path, phase: str, told: list[str]) -> None:
    running, manager, mistakes = Running(tmp_path), Manager(), list[str]()
    running.not_now = "" if phase == "running" else f"the gateway is {phase}"
    told_to = cast("ServiceManager", manager)
    triggers = ReloadTriggers(Reloader(running), told_to, lambda: phase, ManualClock(), mistakes.append)
    triggers.now()
    await until(lambda: not triggers._tasks)  # noqa: SLF001 - nothing else says when it has ended
    assert (manager.told, mistakes) == (told, [])
