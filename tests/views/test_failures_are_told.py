"""Each way in which a cloud fails is a line in the ledger of decisions, and the query stays home meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from libcloud.common.exceptions import BaseHTTPError, RateLimitReachedError
from libcloud.common.types import InvalidCredsError

from gateway.core.decide.scheduler import Scheduler, SchedulerSettings
from gateway.views.why.decisions import DecisionLog
from gateway.views.why.telling import sentences
from infra.clouds.base import BootError, CredentialsError, QuotaError, ThrottledError, UnavailableError
from infra.clouds.providers.errors import in_words
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget
from policies.signals import Event, QuerySlot, SlotEnded
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from tests.support.fleet_doubles import RUNTIME, Fleet
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

SWITCHING = SwitchingSettings(
    start_vm_above_s=3.0, send_above_s=2.0, keep_vm_above_s=1.0, keep_vm_bytes=1000, tolerance_s=0.0
)


class Site:
    """A scheduler, an actuator and a ledger, connected as in the daemon."""

    def __init__(self, folder: Path, boot_within_s: float = 0.0) -> None:
        self.clock = ManualClock()
        self.fleet = Fleet(folder, self.clock)
        self.fleet.listener = self._between_slots
        self.log = DecisionLog(folder / "decisions")
        self._slots = 0
        self._scheduler = Scheduler(
            SchedulerSettings(
                queries=(QuerySettings(name="a", switching=SWITCHING, latency_qos_s=2.0),),
                max_vms=1,
                billing=BillingTerms(60.0, 60.0, 0.1, 0.0),
                budget=Budget(),
                boot_s=5.0,
                boot_within_s=boot_within_s,
                slot_s=1.0,
            )
        )

    def _between_slots(self, event: Event) -> None:
        self.log.note_event(event)
        commands = self._scheduler.handle(event)
        self.log.note_commands(commands)
        self.fleet.actuator.execute(commands)

    def slot(self) -> dict[str, Any]:
        """End a slot with too high a latency; return its line."""
        self.clock.advance(1.0)
        self._slots += 1
        slot = QuerySlot(query="a", latency_s=5.0)
        event = SlotEnded(event_id=f"slot {self._slots}", at_s=self.clock.now(), queries=(slot,))
        commands = self._scheduler.handle(event)
        self.fleet.actuator.execute(commands)
        self.log.note(self._scheduler.last_decisions, self.clock.wall(), commands)
        return self.log.last["a"]

    @property
    def spent_usd(self) -> float:
        return self._scheduler.totals(self.clock.now()).usd

    async def end(self) -> None:
        await self.fleet.actuator.terminate_all()
        await self.log.close()
        assert self.fleet.cloud.nodes == {}
        assert self.fleet.actuator.failure is None


def told(error: Exception) -> Exception:
    return in_words(error, "EC2 eu-west-1")


@pytest.mark.parametrize(
    ("failure", "kind", "says"),
    [
        (told(BaseHTTPError(400, "VcpuLimitExceeded: more than your limit")), QuotaError, "lower max_vms"),
        (told(BaseHTTPError(500, "InsufficientInstanceCapacity: none")), Exception, "name more sizes or zones"),
        (told(RateLimitReachedError(headers={"retry-after": "7"})), ThrottledError, "it asks for fewer requests"),
        (told(InvalidCredsError("nobody")), CredentialsError, "cloud.credentials are right"),
        (told(OSError(111, "Connection refused")), UnavailableError, "can be reached from here"),
        (BootError("vm-1: nothing listens on i-1 after 900 s"), BootError, "nothing listens on i-1 after 900 s"),
    ],
    ids=["quota", "no capacity", "storm", "credentials", "unreachable", "never boots"],
)
async def test_a_launch_that_fails_is_told_with_what_to_do(
    tmp_path: Path, failure: Exception, kind: type[Exception], says: str
) -> None:
    assert isinstance(failure, kind)
    site = Site(tmp_path)
    site.fleet.cloud.refusals.append(failure)
    assert [action["what"] for action in site.slot()["actions"]] == ["StartVm"]
    await until(lambda: site.fleet.kinds("vm-1") == ["VmFailed", "VmGone"])
    line = site.slot()
    (action,) = [action for action in line["actions"] if action["what"] == "TerminateVm"]
    assert action["of"] == "vm-1"
    assert action["why"].startswith("launch of vm-1 failed: ")
    assert says in action["why"]
    assert line["verdict"].startswith("stays home")
    await site.end()


@pytest.mark.parametrize(
    ("failure", "usd"),
    [
        (QuotaError("none left"), 0.0),
        (BootError("it never listened"), 0.1 / 60),
        (UnavailableError("no answer"), 0.1 / 60),
    ],
    ids=["no machine", "a machine that never booted", "nobody knows"],
)
async def test_what_a_failed_launch_costs_at_the_provider_is_booked(
    tmp_path: Path, failure: Exception, usd: float
) -> None:
    site = Site(tmp_path)
    site.fleet.cloud.refusals.append(failure)
    site.slot()
    await until(lambda: site.fleet.kinds("vm-1") == ["VmFailed", "VmGone"])
    assert site.spent_usd == pytest.approx(usd)
    await site.end()


async def test_the_next_launch_waits_as_long_as_the_provider_said(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fleet.cloud.refusals.append(ThrottledError("come back in an hour", 3600.0))
    assert [action["what"] for action in site.slot()["actions"]] == ["StartVm"]
    await until(lambda: site.fleet.kinds("vm-1") == ["VmFailed", "VmGone"])
    lines = [site.slot() for _ in range(3599)]
    assert not any(action["what"] == "StartVm" for line in lines for action in line["actions"])
    assert "the next launch is tried in" in lines[1]["vm_note"]
    again = [action["of"] for _ in range(2) for action in site.slot()["actions"] if action["what"] == "StartVm"]
    assert again == ["vm-2"]
    await until(lambda: site.fleet.kinds("vm-2") == ["VmReady"])
    await site.end()


async def test_a_machine_that_boots_the_wrong_thing_is_told_with_the_difference(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fleet.dialler.runtime = msgspec.structs.replace(RUNTIME, java="11")
    site.slot()
    await until(lambda: site.fleet.kinds("vm-1") == ["VmFailed", "VmGone"])
    (why,) = [action["why"] for action in site.slot()["actions"] if action["what"] == "TerminateVm"]
    assert "java: '21' here, '11' there" in why
    assert site.fleet.cloud.nodes == {}
    assert site.fleet.cloud.given_up == ["vm-1"], "the cloud knows that another kind may do better"
    await site.end()


async def test_what_had_to_be_passed_over_is_told_when_a_vm_is_ready(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.fleet.cloud.failures = ("m5.large in a: none left: name more sizes or zones",)
    site.slot()
    await until(lambda: site.fleet.kinds("vm-1") == ["VmReady"])
    line = site.slot()
    assert line["setbacks"] == ["vm-1: m5.large in a: none left: name more sizes or zones"]
    assert "  Failed before this VM was ready: vm-1: m5.large in a: none left: name more sizes or zones." in sentences(
        line
    )
    assert site.slot()["setbacks"] == [], "it is told once"
    await site.end()


async def test_a_boot_of_ten_minutes_is_waited_for_and_told_each_minute(tmp_path: Path) -> None:
    site = Site(tmp_path, boot_within_s=900.0)
    site.fleet.cloud.boots.clear()
    for _ in range(600):
        assert site.slot()["verdict"].startswith("stays home")
    await site.log.close()
    files = sorted((tmp_path / "decisions").iterdir())
    lines = [msgspec.json.decode(line) for path in files for line in path.read_bytes().splitlines()]
    starting = [line for line in lines if line["vms"] == {"vm-1": "starting"}]
    assert len(starting) >= 10
    slow = [line for line in starting if line["slow"]]
    assert slow[0]["wall_s"] - starting[0]["wall_s"] == pytest.approx(11.0), "at once when it has taken twice boot: 5s"
    assert slow == starting[2:], "the slots between are without news"
    why = "  vm-1 has been starting for more than 10 s, 2 times what boot says; it is terminated after 1200 s."
    assert why in sentences(slow[0])
    site.fleet.cloud.boots.set()
    await until(lambda: site.fleet.kinds("vm-1") == ["VmReady"])
    assert site.slot()["vms"] == {"vm-1": "idle"} or site.log.last["a"]["vms"] == {"vm-1": "sending"}
    assert site.log.last["a"]["slow"] == []
    await site.end()
