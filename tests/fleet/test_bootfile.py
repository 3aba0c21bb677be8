"""The boots that were seen outlive the gateway, and nothing about their file can stop it."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.core.decide.scheduler import SchedulerSettings
from gateway.deciding import Deciding, MakeEvent
from gateway.fleet.bootfile import BootFile
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, LedgerState
from policies.signals import QueryOpened, QuerySlot, SlotEnded, VmReady
from policies.switching.query import QuerySettings
from policies.switching.switching import SwitchingSettings
from tests.support.gateway_doubles import ManualClock

BOOTS_S = (31.5, 28.25, 40.0)
SETTINGS = SchedulerSettings(
    queries=(QuerySettings(name="q", switching=SwitchingSettings(3.0, 2.0, 1.0, 1000, 0.0), latency_qos_s=2.0),),
    max_vms=2,
    billing=BillingTerms(20.0, 20.0, 0.36, 0.0),
    budget=Budget(),
    boot_s=5.0,
    slot_s=1.0,
)


async def test_a_later_gateway_knows_the_boots(tmp_path: Path) -> None:
    path = tmp_path / "boots.json"
    assert BootFile(path, 25.0).read() == ()
    await BootFile(path, 25.0).save(BOOTS_S)
    assert BootFile(path, 25.0).read() == BOOTS_S


async def test_boots_are_forgotten_once_the_config_says_another_time(tmp_path: Path) -> None:
    path = tmp_path / "boots.json"
    await BootFile(path, 25.0).save(BOOTS_S)
    changed = BootFile(path, 60.0)
    assert changed.read() == ()
    await changed.save((61.0,))
    assert BootFile(path, 60.0).read() == (61.0,)


async def test_a_file_is_written_when_boots_change_and_not_otherwise(tmp_path: Path) -> None:
    path = tmp_path / "boots.json"
    boots = BootFile(path, 25.0)
    await boots.save(())
    assert not path.exists()
    await boots.save(BOOTS_S)
    path.unlink()
    await boots.save(BOOTS_S)
    assert not path.exists()


@pytest.mark.parametrize("text", ["", "{", '{"configured_s": 25, "boots_s": [-1]}', '{"configured_s": 25}'])
def test_a_damaged_file_is_told_and_boots_are_learned_again(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "boots.json"
    path.write_text(text)
    with caplog.at_level(logging.WARNING):
        assert BootFile(path, 25.0).read() == ()
    assert f"{path} cannot be read" in caplog.text
    assert "learned again" in caplog.text


async def test_a_disk_that_fails_is_told_and_the_next_boot_is_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    boots = BootFile(folder / "boots.json", 25.0)
    with caplog.at_level(logging.WARNING):
        await boots.save((30.0,))
        await boots.save((30.0,))
    assert caplog.text.count("cannot be written") == 1
    folder.mkdir()
    await boots.save((30.0, 31.0))
    assert BootFile(folder / "boots.json", 25.0).read() == (30.0, 31.0)


async def test_a_gateway_that_is_started_again_expects_what_a_vm_took(tmp_path: Path) -> None:
    def deciding(clock: ManualClock) -> Deciding:
        return Deciding(SETTINGS, tmp_path, clock, watch=lambda *_: None, execute=lambda _: None)

    def late(event_id: str, at_s: float) -> SlotEnded:
        return SlotEnded(event_id=event_id, at_s=at_s, queries=(QuerySlot(query="q", latency_s=4.0),))

    clock = ManualClock()
    first = deciding(clock)
    first.restore(LedgerState())
    events: list[MakeEvent] = [
        lambda event_id, at_s: QueryOpened(event_id=event_id, at_s=at_s, query="q", switchable=True),
        late,
        late,
    ]
    for event in events:
        clock.advance(1.0)
        first.handle(event)
    ordered_s = clock.now()
    clock.advance(42.0)
    first.handle(lambda event_id, at_s: VmReady(event_id=event_id, at_s=at_s, vm="vm-1", billing_since_s=ordered_s))
    await first.end_slot(late, 0.0)
    await first.close()
    again = deciding(clock)
    again.restore(LedgerState())
    assert again.scheduler.boots_s == first.scheduler.boots_s
    assert again.scheduler.boot(clock.now()).expected_s == pytest.approx(42.0, abs=1.5)
    await again.close()
