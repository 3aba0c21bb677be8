from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from gateway.connectors.position import Position
from gateway.query.flow.runlog import LogHead, RunLog, RunRecord
from infra.failpoints import installed
from infra.statefiles import StateError

HEAD = LogHead("owner", 1_700_000_000.25)


def record(number: int, size: int = 10) -> RunRecord:
    """Run ``number``, each of ``size`` events of 100 bytes."""
    first = number * size
    return RunRecord(
        first,
        first + size - 1,
        Position(first, 0, first * 100),
        Position(first + size, 0, (first + size) * 100),
        1_700_000_000.5 + number,
        disordered=number % 2 == 1,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "runs.log"


@pytest.fixture(autouse=True)
def killed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the files of logs that a test leaves like a killed process would; ``close`` does not do that."""
    opened: list[RunLog] = []
    real = RunLog.__init__

    def remember(self: RunLog, path: Path, head: LogHead) -> None:
        real(self, path, head)
        opened.append(self)

    monkeypatch.setattr(RunLog, "__init__", remember)
    yield
    for log in opened:
        log.close(rewrite=False)


def filled(path: Path, count: int) -> RunLog:
    log = RunLog(path, HEAD)
    log.append([record(i) for i in range(count)])
    return log


def test_reopened_it_gives_the_same_runs_and_head(path: Path) -> None:
    filled(path, 5)
    again = RunLog(path, LogHead("owner", 5.0))
    assert again.runs == [record(i) for i in range(5)]
    assert again.head == HEAD
    assert (again.next_seq, again.position) == (50, Position(50, 0, 5000))


def test_a_new_log_begins_with_its_head(path: Path) -> None:
    log = RunLog(path, HEAD)
    assert (log.next_seq, log.position, log.runs) == (0, Position(), [])
    assert RunLog(path, HEAD).head == HEAD


def test_torn_at_any_byte_it_keeps_the_whole_lines_and_goes_on(path: Path) -> None:
    filled(path, 3)
    whole = path.read_bytes()
    ends = [i + 1 for i, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        runs = sum(end <= cut for end in ends) - 1
        if runs < 0:
            with pytest.raises(StateError, match="no readable head"):
                RunLog(path, HEAD)
            continue
        log = RunLog(path, HEAD)
        assert log.runs == [record(i) for i in range(runs)]
        log.append([record(runs)])
        assert RunLog(path, HEAD).runs == [record(i) for i in range(runs + 1)]


def test_a_last_line_with_flipped_bytes_is_cut(path: Path) -> None:
    filled(path, 3)
    whole = bytearray(path.read_bytes())
    whole[-5] ^= 0xFF
    path.write_bytes(whole)
    assert RunLog(path, HEAD).runs == [record(0), record(1)]
    assert path.read_bytes().count(b"\n") == 3


def test_damage_before_the_last_line_is_reported_with_its_place(path: Path) -> None:
    filled(path, 4)
    whole = path.read_bytes()
    lines = whole.split(b"\n")
    for number in range(4):
        damaged = list(lines)
        damaged[number] = damaged[number][:-3] + b"xx}"
        path.write_bytes(b"\n".join(damaged))
        with pytest.raises(StateError, match=rf"runs\.log:{number + 1}: damaged"):
            RunLog(path, HEAD)
        assert path.read_bytes() == b"\n".join(damaged)


def test_a_log_of_other_state_is_refused(path: Path) -> None:
    filled(path, 1)
    with pytest.raises(StateError, match="belongs to a different state"):
        RunLog(path, LogHead("somebody else", 1.0))


def test_retired_runs_are_gone_but_their_place_is_kept(path: Path) -> None:
    log = filled(path, 5)
    log.retire(30)
    assert log.runs == [record(3), record(4)]
    log.retire(35)
    assert log.runs == [record(3), record(4)], "a run that ends later stays whole"
    log.retire(50)
    assert (log.next_seq, log.position, log.runs) == (50, record(4).end, [])
    log.close()
    again = RunLog(path, HEAD)
    assert (again.next_seq, again.position, again.runs) == (50, record(4).end, [])


def test_the_file_is_rewritten_once_it_has_grown_and_stays_bounded(path: Path) -> None:
    log = RunLog(path, HEAD)
    for number in range(200):
        log.append([record(number)])
        log.retire(number * 10, rewrite_bytes=2_000)
        assert path.stat().st_size < 4_000
    again = RunLog(path, HEAD)
    assert again.next_seq == 2000
    assert again.runs[-1] == record(199)


def test_until_it_is_rewritten_retired_runs_come_back(path: Path) -> None:
    log = filled(path, 5)
    log.retire(30)
    assert RunLog(path, HEAD).runs == [record(i) for i in range(5)]


def test_what_is_appended_while_it_is_rewritten_is_not_lost(path: Path) -> None:
    log = RunLog(path, HEAD)

    def append() -> None:
        for i in range(300):
            log.append([record(i)])

    appending = threading.Thread(target=append)
    appending.start()
    retired = 0
    while appending.is_alive():
        retired = max(0, log.next_seq - 50)
        log.retire(retired, rewrite_bytes=0)
    appending.join()
    log.close()
    again = RunLog(path, HEAD)
    assert again.next_seq == 3000
    assert again.runs == [record(i) for i in range(retired // 10, 300)]


def test_a_rewrite_that_fails_leaves_a_log_that_works(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = filled(path, 3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr("gateway.query.flow.runlog.write_atomically", full)
        with pytest.raises(OSError, match="No space"):
            log.retire(10, rewrite_bytes=0)
    assert RunLog(path, HEAD).runs == [record(i) for i in range(3)]
    log.append([record(3)])
    # Nobody knew which of the two files would be there after a crash: it was written anew, without what is retired.
    assert RunLog(path, HEAD).runs == [record(i) for i in range(1, 4)]


@pytest.mark.parametrize("place", ["before", "written", "after"])
def test_a_run_that_a_failing_disk_refused_is_in_once_when_it_is_given_again(path: Path, place: str) -> None:
    log = filled(path, 2)
    times = 1 if place == "after" else 3
    with installed(f"runlog.append.{place}=eio@1-{times}"):
        for _ in range(times):
            with pytest.raises(OSError, match="failpoint"):
                log.append([record(2)])
        log.append([record(2)])
        log.append([record(3)])
        assert log.runs == RunLog(path, HEAD).runs == [record(i) for i in range(4)]


def test_a_rename_that_may_be_undone_is_made_again_before_anything_is_appended(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(path, 3)

    def fail(_: Path) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr("infra.statefiles.sync_folder", fail)
        with pytest.raises(OSError, match="Input/output"):
            log.retire(10, rewrite_bytes=0)
        with pytest.raises(OSError, match="Input/output"):
            log.append([record(3)])
    assert log.next_seq == 30
    log.append([record(3)])
    assert RunLog(path, HEAD).runs == [record(i) for i in range(1, 4)]


def test_closed_on_a_full_disk_it_leaves_what_it_had(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = filled(path, 3)
    log.retire(10)
    with installed("runlog.rewrite.before=enospc@1"):
        log.close()
        assert "cannot be truncated now" in caplog.text
        assert RunLog(path, HEAD).runs == [record(i) for i in range(3)]
        assert list(path.parent.iterdir()) == [path]


def test_the_newest_time_outlives_the_runs(path: Path) -> None:
    log = RunLog(path, HEAD)
    assert log.newest is None
    log.append([msgspec.structs.replace(record(0), newest=("at", 7))])
    assert log.newest == RunLog(path, HEAD).newest == ("at", 7)
    log.retire(10)
    log.close()
    assert RunLog(path, HEAD).newest == ("at", 7)


def test_records_without_events_move_the_position(path: Path) -> None:
    log = filled(path, 1)
    log.skip(Position(17, 0, 1700))
    assert log.position == Position(17, 0, 1700)
    log.append([RunRecord(10, 12, Position(17, 0, 1700), Position(20, 0, 2000), 1.0)])
    assert (log.position, log.next_seq) == (Position(20, 0, 2000), 13)
    again = RunLog(path, HEAD)
    assert (again.position, again.next_seq) == (Position(20, 0, 2000), 13)
