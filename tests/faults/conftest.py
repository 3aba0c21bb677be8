from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.wan import WanUnavailableError
from tests.faults.two_sites import TwoSites
from tests.wan.wan_site import must_be_run


@pytest.fixture(scope="session")
def two_sites() -> Iterator[TwoSites]:
    """Home and the cloud, with a WAN between them where this machine can have one."""
    sites = TwoSites()
    try:
        sites.start()
    except WanUnavailableError as unavailable:
        must_be_run(unavailable)
        sites.why_no_wan = str(unavailable)
    yield sites
    sites.stop()


@pytest.fixture(scope="module")
def sites(two_sites: TwoSites) -> Iterator[TwoSites]:
    """Both sites, with the tests of this module at home."""
    with two_sites.at_home():
        yield two_sites
