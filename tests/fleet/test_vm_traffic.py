"""The traffic of a VM is counted over all its links, each byte once."""

from __future__ import annotations

from typing import cast

from gateway.fleet.vm import Vm
from gateway.hosts.connection import Connection
from infra.link.client import HostLink
from policies.money.billing import Traffic
from tests.support.gateway_doubles import FakeLink


async def test_the_traffic_of_a_link_that_was_replaced_still_counts() -> None:
    vm = Vm("vm-1", 0.0)
    assert vm.traffic() == Traffic()
    first, second = FakeLink(), FakeLink()
    vm.connect(Connection("vm-1", cast("HostLink", first)))
    first.stats.wire_sent_bytes, first.stats.wire_received_bytes = 100, 10
    assert vm.traffic() == Traffic(100, 10)
    first.stats.wire_sent_bytes = 130
    vm.connect(Connection("vm-1", cast("HostLink", second)))
    second.stats.wire_received_bytes = 5
    assert vm.traffic() == Traffic(30, 5)
    assert vm.traffic() == Traffic()
