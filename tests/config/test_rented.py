"""What the config says of machines that are rented: complete, and nothing that means nothing."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.config import Config, ConfigError, load
from gateway.config.rented import Credentials

Write = Callable[..., Path]
SECRETS = {"KEY": "AK", "SECRET": "sk"}
WHO = "credentials: {key: '${KEY}', secret: '${SECRET}'}"
EC2 = f"provider: ec2\n  {WHO}\n  region: eu-west-1\n  image: ami-1\n  sizes: [m5.large, m5.xlarge]"
OPENSTACK = (
    f"provider: openstack\n  {WHO}\n  region: R1\n  endpoint: https://keystone:5000\n  project: p\n"
    "  image: debian-12\n  sizes: [m1.large]"
)
GCE = f"provider: gce\n  {WHO}\n  project: p\n  zones: [europe-west1-b]\n  image: debian-12\n  sizes: [n2-standard-2]"


def loaded(write: Write, provider: str) -> Config:
    return load(write(("provider: process", provider)), SECRETS)


@pytest.mark.parametrize("provider", [EC2, OPENSTACK, GCE], ids=["ec2", "openstack", "gce"])
def test_each_provider_can_be_said(write: Write, provider: str) -> None:
    cloud = loaded(write, provider).cloud
    assert cloud.credentials is not None
    assert (cloud.credentials.key, cloud.credentials.secret.get_secret_value()) == ("AK", "sk")
    assert cloud.bundle is None


def test_sizes_are_an_order_of_preference(write: Write) -> None:
    assert loaded(write, EC2).cloud.sizes == ("m5.large", "m5.xlarge")


@pytest.mark.parametrize(
    ("provider", "old", "new", "key", "says"),
    [
        (EC2, "  region: eu-west-1\n", "", "cloud.region", "provider ec2 needs region: such as eu-west-1"),
        (EC2, f"  {WHO}\n", "", "cloud.credentials", "{key: ${VAR}, secret: ${VAR}}"),
        (EC2, "[m5.large, m5.xlarge]", "[]", "cloud.sizes", "provider ec2 needs sizes"),
        (EC2, "m5.xlarge", "m5.large", "cloud.sizes", "m5.large is there twice"),
        (EC2, "image: ami-1", "image: ami-1\n  project: p", "cloud.project", "means nothing to provider ec2"),
        (EC2, "image: ami-1", "image: ami-1\n  warm: true", "cloud.warm", "for provider process only"),
        (EC2, "image: ami-1", "image: ami-1\n  endpoint: here", "cloud.endpoint", "pattern"),
        (EC2, "image: ami-1", "image: ami-1\n  port: 70000", "cloud.port", "less than or equal to 65535"),
        (OPENSTACK, "  project: p\n", "", "cloud.project", "provider openstack needs project"),
        (OPENSTACK, "image: debian-12", "image: a\n  subnet: s", "cloud.subnet", "means nothing to provider openstack"),
        (GCE, "  zones: [europe-west1-b]\n", "", "cloud.zones", "such as [europe-west1-b]"),
        (GCE, "project: p", "project: p\n  region: r", "cloud.region", "means nothing to provider gce"),
    ],
)
def test_what_is_missing_or_means_nothing_is_said(
    write: Write, provider: str, old: str, new: str, key: str, says: str
) -> None:
    assert old in provider
    with pytest.raises(ConfigError) as caught:
        loaded(write, provider.replace(old, new))
    problems = [(problem.key, problem.text) for problem in caught.value.problems]
    assert [found for found, _ in problems] == [key]
    assert says in problems[0][1]


def test_a_secret_is_not_shown() -> None:
    assert "sk" not in repr(Credentials.model_validate({"key": "AK", "secret": "sk"}))
