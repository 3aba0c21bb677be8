from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.streaming import checkpoints
from engines.streaming.statefiles import SLICE_BYTES, SLICES_BYTES_MOST, StateCopy, StateFile, StateListing
from gateway.query.moving.transfer import StateTransfer, TransferError, batches
from infra.link.channel import LinkLost
from infra.messages import ListState, StatePart, state_folder
from tests.moving.copying_vm import CopyingVm, contents, offsets, write
from tests.support.waiting import until

COPY = "0a1b"
SEVERAL_PARTS = random.Random(1).randbytes(2 * SLICE_BYTES + 5)
FILES = {
    "state/0/0/1.changelog": SEVERAL_PARTS,
    "state/0/1/1.changelog": b"",
    "state/0/2/1.zip": b"a",
    "metadata": b"a",
}


@pytest.fixture
async def vm(tmp_path: Path) -> AsyncIterator[CopyingVm]:
    vm = CopyingVm(tmp_path / "vm")
    yield vm
    await vm.close()


@pytest.fixture
def start(tmp_path: Path) -> Path:
    start = tmp_path / "home" / "checkpoints" / "1"
    write(start, FILES)
    return start


def on_vm(vm: CopyingVm) -> Path:
    """Return the newest checkpoint on the VM."""
    found = checkpoints.newest(vm.link.workdir / state_folder("q", COPY))
    assert found is not None
    return found


async def test_a_checkpoint_goes_there_and_comes_back(vm: CopyingVm, start: Path) -> None:
    transfer, listing = StateTransfer(vm.connection, "q", COPY), StateListing(start)
    await transfer.push(listing.files(), start)
    await transfer.install(listing.files())
    there = on_vm(vm)
    assert contents(there) == contents(start)

    write(there, {"state/0/0/2.changelog": b"new", "offsets/1": b"{}", "commits/1": b"{}"})
    copy = StateCopy(start.parent)
    new = copy.install(await transfer.pull(copy))
    assert contents(new) == contents(there)
    assert not start.exists()


async def test_a_later_copy_sends_only_what_is_new(vm: CopyingVm, start: Path) -> None:
    transfer, listing = StateTransfer(vm.connection, "q", COPY), StateListing(start)
    await transfer.push(listing.files(), start)
    assert transfer.moved_bytes == len(SEVERAL_PARTS) + len(b"a") + len(b"v1") + len(offsets(20))
    before_bytes = transfer.moved_bytes
    write(start, {"state/0/0/2.changelog": b"new"})
    await transfer.push(listing.files(), start)
    assert transfer.moved_bytes == before_bytes + len(b"new")


async def test_what_did_not_arrive_is_not_installed(vm: CopyingVm, start: Path) -> None:
    transfer, listing = StateTransfer(vm.connection, "q", COPY), StateListing(start)
    await transfer.push(listing.files(), start)
    write(start, {"state/0/0/2.changelog": b"new"})
    with pytest.raises(TransferError, match=r"state/0/0/2.changelog has not arrived"):
        await transfer.install(listing.files())
    assert checkpoints.newest(vm.link.workdir / state_folder("q", COPY)) is None


async def test_a_file_that_spark_removes_while_it_is_copied_is_not_needed(vm: CopyingVm, start: Path) -> None:
    transfer, listing = StateTransfer(vm.connection, "q", COPY), StateListing(start)
    files = listing.files()
    (start / "state/0/2/1.zip").unlink()
    await transfer.push(files, start)
    await transfer.push(listing.files(), start)
    await transfer.install(listing.files())
    there = on_vm(vm)

    copy = StateCopy(start.parent)
    write(there, {"state/0/0/2.changelog": b"old", "state/0/0/3.changelog": b"new"})
    vm.link.before["FetchState"] = lambda: (there / "state/0/0/2.changelog").unlink(missing_ok=True)
    pulled = await transfer.pull(copy)
    assert "state/0/0/2.changelog" not in {file.path for file in pulled}
    assert contents(copy.install(pulled)) == contents(there)


async def test_a_copy_that_is_no_copy_is_refused(vm: CopyingVm, start: Path) -> None:
    for query, copy in (("q", "../../elsewhere"), ("..", COPY), ("a/b", COPY)):
        transfer = StateTransfer(vm.connection, query, copy)
        with pytest.raises(TransferError, match="no name of a copy"):
            await transfer.push(StateListing(start).files(), start)
    assert not [path for path in vm.link.workdir.rglob("*") if path.is_file()]


async def test_a_part_that_was_not_announced_is_refused(vm: CopyingVm, start: Path) -> None:
    part = StatePart(query="q", copy=COPY, sha256="0" * 64, offset=0)
    vm.link.before["StateEnd"] = lambda: vm.link.copies.take("session", part, b"bytes")
    with pytest.raises(TransferError, match="was not announced"):
        await StateTransfer(vm.connection, "q", COPY).push(StateListing(start).files(), start)


async def test_the_reply_to_a_cancelled_request_is_not_taken_for_another(vm: CopyingVm, start: Path) -> None:
    transfer, listing = StateTransfer(vm.connection, "q", COPY), StateListing(start)
    await transfer.push(listing.files(), start)
    await transfer.install(listing.files())
    cancelled = asyncio.create_task(transfer.pull(StateCopy(start.parent)))
    await until(lambda: any(isinstance(said, ListState) for said, _ in vm.link.sent))
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    copy = StateCopy(start.parent)
    new = copy.install(await transfer.pull(copy))
    assert contents(new) == contents(on_vm(vm))


@pytest.mark.parametrize("messages", range(4))
async def test_a_link_that_is_lost_ends_the_transfer(vm: CopyingVm, start: Path, messages: int) -> None:
    transfer, listing = StateTransfer(vm.connection, "q", COPY), StateListing(start)
    vm.link.dies_after = messages

    async def copied() -> None:
        await transfer.push(listing.files(), start)
        await transfer.install(listing.files())

    with pytest.raises(LinkLost):
        await copied()


@given(st.lists(st.integers(0, 3 * SLICES_BYTES_MOST), max_size=5))
def test_each_byte_is_asked_for_once_and_no_answer_is_too_long(sizes: list[int]) -> None:
    files = [StateFile(path=f"{i}", size_bytes=size, sha256=f"{i:064}") for i, size in enumerate(sizes)]
    groups = list(batches(files))
    for group in groups:
        assert sum(each.size_bytes for each in group) <= SLICES_BYTES_MOST
        assert all(each.size_bytes <= SLICE_BYTES for each in group)
    for file in files:
        parts = [(each.offset, each.size_bytes) for group in groups for each in group if each.file is file]
        ends = [0]
        for offset, size_bytes in parts:
            assert offset == ends[-1]
            ends.append(offset + size_bytes)
        assert parts
        assert ends[-1] == file.size_bytes
