"""The process provider, cold and warm, keeps the contract of clouds."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable

import psutil
import pytest

from infra.clouds.process import ProcessCloud
from tests.clouds.contract import CHECKS, Subject, check_cloud, user_data

SILENT = (sys.executable, "-c", "import signal; signal.pause()")
MakeCloud = Callable[..., ProcessCloud]
Check = Callable[[Subject], Awaitable[None]]


def subject(make_cloud: MakeCloud, workers: Callable[[], list[psutil.Process]], *, warm: bool) -> Subject:
    return Subject(
        new=lambda: make_cloud(warm=warm, boot_s=5.0),
        broken=lambda: make_cloud(worker_command=SILENT, listen_within_s=2.0),
        remains=lambda: len(workers()),
    )


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_cold(check: Check, make_cloud: MakeCloud, workers: Callable[[], list[psutil.Process]]) -> None:
    await check_cloud(subject(make_cloud, workers, warm=False), check)


@pytest.mark.parametrize("check", CHECKS[:4], ids=lambda check: check.__name__)
async def test_warm(check: Check, make_cloud: MakeCloud, workers: Callable[[], list[psutil.Process]]) -> None:
    under_test = subject(make_cloud, workers, warm=True)
    await make_cloud(warm=True).prepare(user_data)
    await check_cloud(under_test, check)
