"""EC2 through libcloud keeps the contract of clouds, against moto's server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from tests.clouds.contract import CHECKS, Subject, check_cloud
from tests.clouds.ec2_lab import Ec2Lab, never

Check = Callable[[Subject], Awaitable[None]]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_ec2(check: Check, ec2: Ec2Lab) -> None:
    subject = Subject(
        new=ec2.cloud,
        broken=lambda: ec2.cloud(is_host=never, boot_within_s=20.0),
        remains=lambda: len(ec2.instances()),
    )
    await check_cloud(subject, check)
