from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gateway.fleet.books
from gateway.fleet.books import Books, FleetBooks
from infra.objectstore.base import StoreUnavailableError
from infra.objectstore.folder import FolderStore
from infra.statefiles import StateError
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger
from tests.support.gateway_doubles import ManualClock
from tests.support.waiting import until

TERMS = BillingTerms(period_s=60.0, minimum_s=60.0, usd_per_hour=6.0, usd_per_gb_sent=0.0)
NOW_S = 1_700_000_000.0


def opened(
    folder: Path, at_s: float = NOW_S, orphan_after_s: float = 30.0, fleet: FleetBooks | None = None
) -> tuple[Books, Ledger]:
    ledger = Ledger(Budget(5.0))
    books = Books(
        folder / "books.json",
        lambda: ledger.state,
        lambda why: setattr(ledger, "frozen", why),
        TERMS,
        orphan_after_s=orphan_after_s,
        clock=ManualClock(wall_s=at_s),
        fleet=fleet,
    )
    if fleet is None:
        ledger.restore(books.restored)
    return books, ledger


async def owner(folder: Path, store: FolderStore) -> tuple[Books, Ledger]:
    """The books of a gateway that owns its fleet."""
    folder.mkdir()
    books, ledger = opened(folder, fleet=FleetBooks(store, "town"))
    await books.join()
    ledger.restore(books.restored)
    return books, ledger


async def test_what_was_spent_is_known_after_a_restart(tmp_path: Path) -> None:
    books, ledger = opened(tmp_path)
    ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
    ledger.settle("vm-1", {"q": 0.75}, NOW_S)
    await books.save()
    _, again = opened(tmp_path)
    assert (again.spent_usd(NOW_S), again.reserved_usd) == (0.75, 0.0)
    assert again.left_usd(NOW_S) == 4.25


async def test_what_was_reserved_counts_as_spent_after_a_crash(tmp_path: Path) -> None:
    books, ledger = opened(tmp_path)
    ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
    await books.save()
    _, soon = opened(tmp_path, NOW_S + 50)
    assert soon.spent_usd(NOW_S) == 1.0
    _, later = opened(tmp_path, NOW_S + 500)
    assert later.spent_usd(NOW_S) == pytest.approx(1.0 + 0.1)


async def test_a_settlement_that_was_not_saved_errs_on_the_safe_side(tmp_path: Path) -> None:
    books, ledger = opened(tmp_path)
    ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
    await books.save()
    ledger.settle("vm-1", {"q": 0.25}, NOW_S)
    _, again = opened(tmp_path)
    assert again.spent_usd(NOW_S) == 1.0


async def test_nothing_is_reserved_while_the_disk_takes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    books, ledger = opened(tmp_path)
    with monkeypatch.context() as disk:

        def full(path: Path, data: bytes) -> None:
            raise OSError(28, "No space left on device")

        disk.setattr(gateway.fleet.books, "write_atomically", full)
        assert ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
        with pytest.raises(OSError, match="No space left"):
            await books.save()
        assert "No space left" in ledger.frozen
        assert not ledger.reserve("vm-2", {"q": 1.0}, NOW_S, NOW_S + 60)
        books.save_soon()
        await until(lambda: "no VM is launched or renewed" in caplog.text)
    books.save_soon()
    await until(lambda: not ledger.frozen)
    assert ledger.reserve("vm-2", {"q": 1.0}, NOW_S, NOW_S + 60)
    await books.close()
    assert opened(tmp_path)[1].spent_usd(NOW_S) == 2.0


async def test_books_without_a_change_are_not_written(tmp_path: Path) -> None:
    books, _ = opened(tmp_path)
    books.save_soon()
    await books.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_read_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / "books.json").write_text('{"spent": [')
    with pytest.raises(StateError, match=r"books\.json cannot be read .*: restore it from a backup"):
        opened(tmp_path)


async def test_the_next_owner_of_a_fleet_does_not_spend_the_budget_again(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    books, ledger = await owner(tmp_path / "one", store)
    ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
    ledger.reserve("vm-2", {"q": 2.0}, NOW_S, NOW_S + 60)
    await books.save()
    ledger.settle("vm-1", {"q": 0.75}, NOW_S)
    await books.save()
    other, elsewhere = await owner(tmp_path / "two", store)
    assert (elsewhere.spent_usd(NOW_S), other.inherited) == (2.75, {"vm-2"})
    assert not elsewhere.reserve("vm-3", {"q": 2.5}, NOW_S, NOW_S + 60)


async def test_a_gateway_that_waits_for_its_fleet_writes_no_books(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    books, ledger = opened(tmp_path, fleet=FleetBooks(store, "town"))
    ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
    await books.save()
    assert FleetBooks(store, "town").read() is None
    assert not (tmp_path / "books.json").exists()


async def test_an_owner_that_was_overtaken_cannot_spend(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "store")
    books, ledger = await owner(tmp_path / "one", store)
    later_books, later = await owner(tmp_path / "two", store)
    later.reserve("vm-2", {"q": 1.0}, NOW_S, NOW_S + 60)
    await later_books.save()
    ledger.reserve("vm-1", {"q": 2.0}, NOW_S, NOW_S + 60)
    with pytest.raises(OSError, match="the books of fleet town"):
        await books.save()
    assert not ledger.reserve("vm-3", {"q": 1.0}, NOW_S, NOW_S + 60)
    found = FleetBooks(store, "town").read()
    assert found is not None
    assert [held.name for held in found.reserved] == ["vm-2"]


class Silent(FolderStore):
    """A store that answers only while it ``answers``."""

    answers = True

    def put_if_absent(self, name: str, data: bytes) -> str:
        if not self.answers:
            raise StoreUnavailableError("no answer")
        return super().put_if_absent(name, data)


async def test_nothing_is_reserved_while_the_store_of_a_fleet_takes_nothing(tmp_path: Path) -> None:
    store = Silent(tmp_path / "store")
    books, ledger = await owner(tmp_path / "one", store)
    store.answers = False
    ledger.reserve("vm-1", {"q": 1.0}, NOW_S, NOW_S + 60)
    with pytest.raises(OSError, match="no answer"):
        await books.save()
    assert not ledger.reserve("vm-2", {"q": 1.0}, NOW_S, NOW_S + 60)
    store.answers = True
    await books.save()
    assert ledger.reserve("vm-2", {"q": 1.0}, NOW_S, NOW_S + 60)


PROGRAM = """
import asyncio, sys
from pathlib import Path
from gateway.fleet.books import Books
from infra.clock import SystemClock
from policies.money.billing import BillingTerms
from policies.money.ledger import Budget, Ledger

async def main():
    clock, ledger = SystemClock(), Ledger(Budget())
    terms = BillingTerms(60.0, 60.0, 0.0, 0.0)
    books = Books(Path(sys.argv[1]), lambda: ledger.state, print, terms, orphan_after_s=1.0, clock=clock)
    for number in range(10**9):
        name, now_s = f"vm-{number % 3}", clock.wall()
        ledger.reserve(name, {"q": 0.01 * (number % 7)}, now_s, now_s + 60)
        await books.save()
        spent_usd = sum(entry.usd for entry in ledger.state.spent)
        print(spent_usd + ledger.reserved_usd, flush=True)
        if number % 2:
            ledger.settle(name, {"q": 0.5 * ledger.reserved_for(name)}, now_s)

asyncio.run(main())
"""


@pytest.mark.parametrize("lines", [1, 20, 77])
async def test_a_gateway_that_is_killed_forgets_nothing_that_it_committed(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "books.json"
    gateway_ = subprocess.Popen([sys.executable, "-c", PROGRAM, str(path)], stdout=subprocess.PIPE, text=True)
    assert gateway_.stdout is not None
    for _ in range(lines):
        committed_usd = float(gateway_.stdout.readline())
    gateway_.send_signal(signal.SIGKILL)
    rest = gateway_.stdout.read().split()
    gateway_.wait()
    gateway_.stdout.close()
    committed_usd = float(rest[-1]) if rest else committed_usd
    _, ledger = opened(tmp_path, orphan_after_s=0.0)
    spent_usd = sum(entry.usd for entry in ledger.state.spent)
    # What was settled and not saved frees at most half of the largest reservation.
    assert committed_usd - 0.03 - 1e-9 <= spent_usd <= committed_usd + 0.06 + 1e-9
