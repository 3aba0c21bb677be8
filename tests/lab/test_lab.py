"""The whole path in the lab: libcloud's call, user data, worker, TLS link, Spark's answers, the end of billing."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from msgspec.structs import replace

from engines.query.code import query_hash
from gateway.config import Config, load
from gateway.fleet.clouds import make_cloud
from gateway.hosts.enrol import user_data
from infra.clock import SystemClock
from infra.clouds.base import BootError, Cloud
from infra.lab.lab import BUCKET, REGION, Lab, LabError
from infra.link.client import HostLink, enrol
from infra.link.keys.trust import Authority, new_token
from infra.messages import OpenQuery, Shutdown
from tests.engines.host_site import Gateway

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

DEADLINE_S = 240.0
TAGS = {"spillway-gateway": "lab-test"}
CONFIG = """\
gateway: {{state_dir: ./state}}
cloud:
  provider: ec2
  endpoint: {endpoint}
  region: {region}
  credentials: {{key: lab, secret: '${{SECRET}}'}}
  image: ami-12c6146b
  sizes: [m5.large]
  address: private
  boot_within: 200s
  bundle: {{bucket: {bucket}, endpoint: '{endpoint}', region: {region}}}
  max_vms: 1
  boot: 60s
  billing: {{period: 60s, minimum: 60s, usd_per_hour: 0.10, usd_per_gb_sent: 0.09}}
  budget: {{usd_per_day: 5}}
queries:
  shout:
    source: {{type: file, path: words.jsonl}}
    schema: id BIGINT, word STRING
    function: mine:shout
    sink: {{type: file, path: out}}
    qos: {{latency: 2s}}
"""
CODE = "def shout(events):\n    return events.selectExpr('id', 'upper(word) AS word')\n"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Lab]:
    try:
        lab = Lab(tmp_path_factory.mktemp("lab"))
    except LabError as error:
        if os.environ.get("CI") == "true":
            pytest.fail(f"CI must run the tests of the lab: {error}")
        pytest.skip(f"not run: {error}")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("AWS_ACCESS_KEY_ID", "lab")
        environment.setenv("AWS_SECRET_ACCESS_KEY", "lab")
        async with lab:
            yield lab


@pytest.fixture
def config(lab: Lab, tmp_path: Path) -> Config:
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "words.jsonl").touch()
    path = tmp_path / "config.yaml"
    path.write_text(CONFIG.format(endpoint=lab.endpoint, region=REGION, bucket=BUCKET))
    return load(path, {"SECRET": "lab"})


async def gone(cloud: Cloud) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while await cloud.list({}):
            await asyncio.sleep(0.2)


async def test_a_rented_machine_answers_with_the_user_s_code_and_ends_with_its_engine_host(
    lab: Lab, config: Config, tmp_path: Path
) -> None:
    cloud = make_cloud(config, SystemClock())
    authority = Authority.open(tmp_path / "trust")
    token = new_token()
    node = await cloud.create("vm-1", TAGS, user_data(authority, "vm-1-lab", token, 300.0))
    try:
        assert (node.state, node.host, dict(node.tags)) == ("running", "vm-1-lab", TAGS)
        address = (node.address, node.port)
        await enrol(address, authority, node.host, token, 60.0)
        link = await HostLink.connect(address, authority, node.host, "s1", clock=SystemClock())
        gateway = Gateway(link)
        await gateway.until_ready()
        asked = OpenQuery(
            query="shout",
            epoch=1,
            schema_ddl="id BIGINT, word STRING",
            function="mine:shout",
            code_path=str(config.folder),
        )
        # The machine has the same code although it is in another folder there.
        query = await gateway.open(replace(asked, code_hash=query_hash(asked)))
        await query.send(0, [{"id": 1, "word": "far"}, {"id": 2, "word": "away"}])
        ((_, answers),) = await query.completed(1)
        assert answers.to_pylist() == [{"id": 1, "word": "FAR"}, {"id": 2, "word": "AWAY"}]
        # What an engine host without a gateway does, too: its end is the machine's, and the bill's.
        await link.send(Shutdown())
        await gone(cloud)
        assert lab.machines[node.id].is_off
    except BaseException:
        print(*(machine.console.read_text() for machine in lab.machines.values() if machine.console.exists()))
        raise
    finally:
        await cloud.destroy(node.id)
        await cloud.close()


async def test_an_image_that_lacks_what_it_should_have_ends_and_is_given_back(
    lab: Lab, config: Config, tmp_path: Path
) -> None:
    baked = config.model_copy(update={"cloud": config.cloud.model_copy(update={"bundle": None})})
    cloud = make_cloud(baked, SystemClock())
    text = user_data(Authority.open(tmp_path / "trust"), "vm-2-lab", new_token(), 300.0)
    with pytest.raises(BootError, match="stopped while it booted"):
        await cloud.create("vm-2", TAGS, text)
    assert await cloud.list({}) == []
    assert any("No such file" in machine.console.read_text() for machine in lab.machines.values())
    await cloud.close()
