"""The configs in docs/clouds.md are right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import load

Write = Callable[..., Path]
PAGE = Path(__file__).parents[2] / "docs" / "clouds.md"
SECTIONS = [part.split("```")[0] for part in PAGE.read_text().split("```yaml\n")[1:]]
NAMES = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "OS_USERNAME",
    "OS_PASSWORD",
    "GCE_ACCOUNT",
    "GCE_KEY_FILE",
    "DIGITALOCEAN_TOKEN",
)
PROVIDERS = ("ec2", "openstack", "gce", "digitalocean")


@pytest.mark.parametrize(("section", "provider"), list(zip(SECTIONS, PROVIDERS, strict=True)))
def test_it_loads(write: Write, section: str, provider: str) -> None:
    path = write()
    head, _, rest = path.read_text().partition("cloud:\n")
    queries = rest[rest.index("queries:") :]
    path.write_text(head + section + queries)
    cloud = load(path, dict.fromkeys(NAMES, "x")).cloud
    assert cloud.provider == provider
    assert cloud.bundle is not None
