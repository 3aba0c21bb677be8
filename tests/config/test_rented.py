"""The config's settings for rented VMs are complete, and a setting that has no effect is refused."""

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from engines.spark.sparkconf import equal_everywhere
from gateway.config import Config, ConfigError, load
from gateway.config.rented import CredentialsConfig
from gateway.config.settings import unattended_s
from gateway.fleet.clouds import BootScripts, account_of, make_cloud
from infra.clock import SystemClock
from infra.clouds.rented import RentedCloud
from infra.link.keys.trust import UserData, new_token
from policies.money.billing import BillingTerms

Write = Callable[..., Path]
SECRETS = {"KEY": "AK", "SECRET": "sk"}
WHO = "credentials: {key: '${KEY}', secret: '${SECRET}'}"
EC2 = f"provider: ec2\n  {WHO}\n  region: eu-west-1\n  image: ami-1\n  sizes: [m5.large, m5.xlarge]"
VIRGINIA = EC2.replace("eu-west-1", "us-east-1").replace("m5.large, m5.xlarge", "c5.large, m6i.large")
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


def test_spare_machines_may_have_a_highest_price_where_prices_move(write: Write) -> None:
    for provider, written, most_usd in ((EC2, "{max_usd_per_hour: 0.04}", 0.04), (EC2, "{}", None), (GCE, "{}", None)):
        spot = loaded(write, f"{provider}\n  spot: {written}").cloud.spot
        assert spot is not None
        assert spot.max_usd_per_hour == most_usd
    assert loaded(write, EC2).cloud.spot is None


def test_sizes_are_an_order_of_preference(write: Write) -> None:
    assert loaded(write, EC2).cloud.sizes == ("m5.large", "m5.xlarge")


@pytest.mark.parametrize(
    ("provider", "old", "new", "key", "says"),
    [
        (EC2, "  region: eu-west-1\n", "", "cloud.region", "provider ec2 needs region: such as eu-west-1"),
        (EC2, f"  {WHO}\n", "", "cloud.credentials", "{key: ${VAR}, secret: ${VAR}}"),
        (EC2, "[m5.large, m5.xlarge]", "[]", "cloud.sizes", "provider ec2 needs sizes"),
        (EC2, "m5.xlarge", "m5.large", "cloud.sizes", "m5.large is listed twice"),
        (EC2, "image: ami-1", "image: ami-1\n  project: p", "cloud.project", "is not used by provider ec2"),
        (EC2, "image: ami-1", "image: ami-1\n  warm: true", "cloud.warm", "for provider process only"),
        (EC2, "image: ami-1", "image: ami-1\n  namespaces: {n: 10.0.0.1}", "cloud.namespaces", "provider process only"),
        (EC2, "image: ami-1", "image: ami-1\n  endpoint: here", "cloud.endpoint", "pattern"),
        (EC2, "image: ami-1", "image: ami-1\n  port: 70000", "cloud.port", "less than or equal to 65535"),
        (OPENSTACK, "  project: p\n", "", "cloud.project", "provider openstack needs project"),
        (OPENSTACK, "image: debian-12", "image: a\n  subnet: s", "cloud.subnet", "is not used by provider openstack"),
        (OPENSTACK, "image: debian-12", "image: a\n  spot: {}", "cloud.spot", "is not used by provider openstack"),
        (EC2, "image: ami-1", "image: ami-1\n  spot: {max_usd_per_hour: 0}", "cloud.spot.max_usd_per_hour", "greater"),
        (GCE, "project: p", "project: p\n  spot: {max_usd_per_hour: 1}", "cloud.spot.max_usd_per_hour", "spot: {}"),
        (GCE, "  zones: [europe-west1-b]\n", "", "cloud.zones", "such as [europe-west1-b]"),
        (EC2, "image: ami-1", "image: a\n  self_delete: {id: a, secret: b}", "cloud.self_delete", "is not used by"),
        (OPENSTACK, "  project: p\n", "  project: p\n  self_delete: {id: a}\n", "cloud.self_delete.secret", "missing"),
        (GCE, "project: p", "project: p\n  region: r", "cloud.region", "is not used by provider gce"),
        (GCE, "project: p", "project: p\n  self_delete: {id: a, secret: b}", "cloud.self_delete.secret", "remove it"),
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


LINK = "emulate_link: {delay: 35ms, rate: 40Mbit/s}"


@pytest.mark.parametrize(
    ("cloud", "key", "says"),
    [
        ("max_vms: 2\n  namespaces: {site-1: 10.0.0.1}", "cloud.namespaces", "names 1 for up to 2 VMs"),
        ("max_vms: 1\n  namespaces: {site-1: nowhere}", "cloud.namespaces.site-1", "IPv4 or IPv6 address"),
        (
            f"max_vms: 1\n  namespaces: {{site-1: 10.0.0.1}}\n  {LINK}",
            "cloud.emulate_link",
            "remove emulate_link or namespaces",
        ),
    ],
)
def test_namespaces_that_cannot_be_are_refused(write: Write, cloud: str, key: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(write(("max_vms: 2", cloud)), {})
    (problem,) = caught.value.problems
    assert problem.key == key
    assert says in problem.text


def test_a_secret_is_not_shown() -> None:
    assert "sk" not in repr(CredentialsConfig.model_validate({"key": "AK", "secret": "sk"}))


def billed(write: Write, provider: str, billing: str) -> Config:
    said = "{period: 60s, minimum: 60s, usd_per_hour: 0.10, usd_per_gb_sent: 0.09}"
    return load(write(("provider: process", provider), (said, billing)), SECRETS)


def test_what_the_provider_asks_is_known_where_it_is_not_said(write: Write) -> None:
    terms = billed(write, EC2, "{usd_per_hour: 0.2, usd_per_gb_sent: 0.09}").cloud.terms
    assert terms == BillingTerms(1.0, 60.0, 0.2, 0.09)
    terms = billed(write, OPENSTACK, "{usd_per_hour: 0.2, usd_per_gb_sent: 0, minimum: 10m}").cloud.terms
    assert terms == BillingTerms(3600.0, 600.0, 0.2, 0.0)


def test_an_ec2_size_costs_what_is_listed_and_the_dearest_is_reserved(write: Write) -> None:
    """The prices are Amazon's own for Virginia."""
    cloud = billed(write, VIRGINIA, "{usd_per_gb_sent: 0.09}").cloud
    assert cloud.size_prices == {"c5.large": 0.085, "m6i.large": 0.096}
    assert cloud.terms.usd_per_hour == 0.096


def test_a_price_that_is_said_holds_for_every_size(write: Write) -> None:
    assert billed(write, EC2, "{usd_per_hour: 0.2, usd_per_gb_sent: 0.09}").cloud.size_prices == {}


def test_a_spare_machine_is_taken_to_cost_its_highest_price(write: Write) -> None:
    cloud = billed(write, f"{VIRGINIA}\n  spot: {{max_usd_per_hour: 0.09}}", "{usd_per_gb_sent: 0.09}").cloud
    assert cloud.size_prices == {"c5.large": 0.085, "m6i.large": 0.09}
    cloud = billed(write, f"{VIRGINIA}\n  spot: {{}}", "{usd_per_gb_sent: 0.09}").cloud
    assert cloud.terms.usd_per_hour == 0.096


@pytest.mark.parametrize(
    ("provider", "unknown"),
    [
        (VIRGINIA.replace("m6i.large", "m99.large"), "m99.large"),
        (f"{EC2}\n  endpoint: http://127.0.0.1:5000", "m5.large, m5.xlarge"),
        (OPENSTACK, "m1.large"),
        (GCE, "n2-standard-2"),
    ],
)
def test_a_price_that_nobody_knows_has_to_be_said(write: Write, provider: str, unknown: str) -> None:
    with pytest.raises(ConfigError) as caught:
        billed(write, provider, "{usd_per_gb_sent: 0.09}")
    (problem,) = caught.value.problems
    assert problem.key == "cloud.billing.usd_per_hour"
    assert f"no price of {unknown} there" in problem.text


def test_processes_have_no_habits(write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        billed(write, "provider: process", "{usd_per_gb_sent: 0.09}")
    assert [problem.key for problem in caught.value.problems] == [
        "cloud.billing.period",
        "cloud.billing.minimum",
        "cloud.billing.usd_per_hour",
    ]


def test_how_long_a_boot_takes_is_known_of_providers_only(write: Write) -> None:
    assert load(write(("provider: process", EC2), ("  boot: 10s\n", "")), SECRETS).cloud.boot_s == 150.0
    assert load(write(("provider: process", EC2)), SECRETS).cloud.boot_s == 10.0
    with pytest.raises(ConfigError, match=r"cloud\.boot: is missing"):
        load(write(("  boot: 10s\n", "")), {})


DROPLETS = f"provider: digitalocean\n  {WHO}\n  zones: [fra1]\n  image: debian-12-x64\n  sizes: [c-4]"


@pytest.mark.parametrize(
    ("provider", "there"),
    [
        (OPENSTACK, {"provider": "openstack", "api_url": "https://keystone:5000", "region": "R1", "id": "a"}),
        (DROPLETS, {"provider": "digitalocean", "api_url": "https://api.digitalocean.com", "region": "", "id": ""}),
    ],
    ids=["openstack", "digitalocean"],
)
async def test_a_machine_that_may_delete_itself_is_told_how(write: Write, provider: str, there: dict[str, str]) -> None:
    cloud = loaded(write, f"{provider}\n  self_delete: {{id: a, secret: '${{SECRET}}'}}").cloud
    told = UserData(host="vm-1", ca_pem="none", token=new_token())
    script = await BootScripts(cloud, dict, 900.0).script(told)
    (line,) = [line for line in script.splitlines() if line.startswith('{"provider"')]
    assert json.loads(line) == {**there, "secret": "sk", "metadata_url": "http://169.254.169.254"}


async def test_a_gce_machine_that_may_delete_itself_has_an_account_and_no_secret(write: Write) -> None:
    email = "vm@p.iam.gserviceaccount.com"
    config = loaded(write, f"{GCE}\n  self_delete: {{id: {email}}}")
    told = UserData(host="vm-1", ca_pem="none", token=new_token())
    script = await BootScripts(config.cloud, dict, 900.0).script(told)
    (line,) = [line for line in script.splitlines() if line.startswith('{"provider"')]
    there = {"provider": "gce", "api_url": "https://compute.googleapis.com", "region": "", "id": "", "secret": ""}
    assert json.loads(line) == {**there, "metadata_url": "http://169.254.169.254"}
    assert account_of(config.cloud).machine_account == email
    assert account_of(loaded(write, GCE).cloud).machine_account is None
    assert account_of(loaded(write, f"{OPENSTACK}\n  self_delete: {{id: a, secret: b}}").cloud).machine_account is None


async def test_a_machine_is_told_the_spark_settings_that_answers_depend_on(write: Write) -> None:
    conf = "cloud:", "private: {spark: {conf: {spark.sql.caseSensitive: true, spark.executor.cores: 2}}}\ncloud:"
    spark = load(write(conf), {}).private.spark
    scripts = BootScripts(loaded(write, GCE).cloud, dict, 900.0, equal_everywhere(spark.conf))
    script = await scripts.script(UserData(host="vm-1", ca_pem="none", token=new_token()))
    (line,) = [line for line in script.splitlines() if line.startswith('{"host"')]
    assert UserData.from_json(line).spark_conf == {"spark.sql.caseSensitive": "true"}


def test_where_only_deleting_stops_the_bill_a_dead_gateway_s_vms_cost_on(write: Write) -> None:
    costs_on = {name: unattended_s(loaded(write, p)) for name, p in (("ec2", EC2), ("os", OPENSTACK), ("gce", GCE))}
    assert costs_on == {"ec2": 60.0, "os": math.inf, "gce": math.inf}
    assert unattended_s(load(write(), {})) == 60.0
    assert unattended_s(loaded(write, DROPLETS)) == math.inf
    with_secret = "{id: a, secret: '${SECRET}'}"
    for provider, by in ((OPENSTACK, with_secret), (DROPLETS, with_secret), (GCE, "{id: a@p}")):
        assert unattended_s(loaded(write, f"{provider}\n  self_delete: {by}")) == 60.0


def test_what_was_of_no_use_to_an_earlier_gateway_is_known(write: Write) -> None:
    config = loaded(write, EC2)
    config.gateway.state_dir.mkdir(parents=True, exist_ok=True)
    clock = SystemClock()
    earlier = make_cloud(config, clock)
    assert isinstance(earlier, RentedCloud)
    earlier.kinds.was_unfit(("m5.large", None), clock.wall())
    later = make_cloud(config, clock)
    assert isinstance(later, RentedCloud)
    assert later.kinds.by_merit(clock.wall())[0] == ("m5.xlarge", None)
    assert [path.name for path in config.gateway.state_dir.iterdir()] == ["unfit-kinds.json"]
