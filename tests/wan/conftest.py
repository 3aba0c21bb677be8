from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import NoReturn

import pytest
import pytest_asyncio

from infra.wan import Wan, WanSettings, WanUnavailableError
from tests.wan.wan_site import IMAGE


def not_run(unavailable: WanUnavailableError) -> NoReturn:
    """Report that a test of the WAN is skipped, and why; fail if it must not be skipped."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI must run the tests of the WAN: {unavailable}")
    pytest.skip(f"not run: {unavailable}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started_wan() -> AsyncIterator[Wan]:
    """A WAN of the kind that this machine supports, for all tests of a module: a small machine boots in 3 to 15 s."""
    wan = Wan(image=IMAGE)
    try:
        await wan.start()
    except WanUnavailableError as unavailable:
        await wan.stop()
        not_run(unavailable)
    yield wan
    await wan.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def wan(started_wan: Wan) -> AsyncIterator[Wan]:
    """That WAN in its initial state."""
    yield started_wan
    for name in [name for name in started_wan.sites if name != started_wan.home.name]:
        await started_wan.remove(name)
    await started_wan.heal()
    await started_wan.set(WanSettings())
