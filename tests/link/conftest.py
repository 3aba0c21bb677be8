from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from infra.link.keys.trust import Authority
from tests.link.link_site import Site, new_site


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority.open(tmp_path / "trust")


@pytest.fixture
async def site(authority: Authority) -> AsyncIterator[Site]:
    """An enrolled host."""
    async with new_site(authority, enrolled=True) as site:
        yield site


@pytest.fixture
async def new_host(authority: Authority) -> AsyncIterator[Site]:
    """A host whose certificate nobody has signed yet."""
    async with new_site(authority, enrolled=False) as site:
        yield site
