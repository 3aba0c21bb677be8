"""Spark at home carries a query from Kafka to Kafka; results are those of events that pass the gateway, once each."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gateway.demo.kafka.turns import turns_in
from tests.connectors.kafka_broker import Broker
from tests.e2e.direct_site import Site, expected
from tests.e2e.harness import end_hosts, kill_gateways, until

_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("hosts")
    yield folder
    end_hosts(folder)


@pytest.fixture
def site(broker: Broker, tmp_path: Path, hosts: Path) -> Iterator[Site]:
    yield Site(broker, tmp_path, hosts, name=f"carried-{next(_NUMBERS)}")
    kill_gateways()


def test_spark_carries_a_query_and_the_gateway_takes_over_for_dirty_data(site: Site) -> None:
    site.produce(range(600))
    site.start()
    site.wait_for(len(expected(range(600))))
    site.wait_until_carried()
    site.produce(range(600, 1_200))
    site.wait_for(len(expected(range(1_200))))
    site.produce(range(1_200, 1_500), b"no JSON")
    site.produce(range(1_500, 1_800))
    site.wait_for(len(expected(range(1_800))))
    until(lambda: site.said("is no plain event"), "the gateway takes over")
    assert 1 in site.carried(), "Spark keeps the other partition"
    until(lambda: site.letters.exists() and len(site.letters.read_text().splitlines()) == 1, "a dead letter")
    site.assert_exact(range(1_800))


KILLED: dict[str, Callable[[Site], int]] = {
    "gateway": lambda site: site.gateway.process.pid if site.gateway.process is not None else 0,
    "home": lambda site: site.gateway.home_pid(),
}


@pytest.mark.parametrize("who", KILLED)
def test_nothing_is_lost_when_one_is_killed_while_spark_carries_it(site: Site, who: str) -> None:
    site.produce(range(300))
    site.start()
    site.wait_until_carried()
    site.produce(range(300, 900))
    site.wait_for(len(expected(range(600))))
    os.kill(KILLED[who](site), signal.SIGKILL)
    site.produce(range(900, 1_200))
    if who == "gateway":
        site.start()
    site.wait_for(len(expected(range(1_200))))
    site.wait_until_carried()
    site.produce(range(1_200, 1_300))
    site.wait_for(len(expected(range(1_300))))
    site.assert_exact(range(1_300), once=who == "gateway")


def test_a_query_that_insists_on_exactly_once_is_taken_from_spark_while_the_gateway_runs(site: Site) -> None:
    site.produce(range(300))
    site.start()
    site.wait_until_carried()
    site.produce(range(300, 900))
    site.wait_for(len(expected(range(600))))
    site.configure(delivery="exactly_once")
    site.gateway.kill(signal.SIGHUP)
    site.produce(range(900, 1_200))
    until(lambda: site.said("delivery: exactly_once does not allow direct"), "the log says why")
    turns = turns_in(site.gateway.log)
    site.produce(range(1_200, 1_500))
    site.wait_for(len(expected(range(1_500))))
    os.kill(KILLED["home"](site), signal.SIGKILL)
    site.produce(range(1_500, 1_800))
    site.wait_for(len(expected(range(1_800))))
    assert turns_in(site.gateway.log) == turns, "Spark carries nothing any more"
    site.assert_exact(range(1_800))
