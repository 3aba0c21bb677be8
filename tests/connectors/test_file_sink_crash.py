"""The file sink dies, or its disk fails, at every step; each time the folder holds exactly what was committed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from io import BufferedWriter
from pathlib import Path

import pytest

from gateway.connectors.position import Position
from gateway.core.intervals import IntervalSet
from gateway.sinks.base import ReleasedRows
from gateway.sinks.parts.filesink import FileSink
from tests.connectors.file_sinks import open_sink, parts, rows, seqs

# What is committed, piece by piece: gaps, late runs, an empty run.
STEPS: list[list[ReleasedRows]] = [
    [rows(0, 4), rows(5, 9)],
    [rows(20, 24), rows(10, 14, late=True), rows(30, 34)],
    [rows(15, 19, late=True), rows(25, 29, late=True)],
]


@contextmanager
def watched(before: Callable[[str], None], after: Callable[[str], None]) -> Iterator[None]:
    """Call ``before`` and ``after`` around each system call that changes or syncs the folder."""
    with pytest.MonkeyPatch.context() as patch:

        def wrap(owner: object, name: str) -> None:
            real = getattr(owner, name)

            def call(*args: object, **kwargs: object) -> object:
                before(name)
                result = real(*args, **kwargs)
                try:
                    after(name)
                except OSError:
                    if isinstance(result, BufferedWriter):
                        result.close()
                    raise
                return result

            patch.setattr(owner, name, call)

        wrap(os, "fsync")
        for name in ("open", "rename", "replace", "unlink"):
            wrap(Path, name)
        yield


def check(folder: Path, committed: IntervalSet) -> None:
    """Check that the visible rows are those of ``committed``, once each."""
    visible = sorted(seqs(folder))
    assert visible == [number for first, last in committed for number in range(first, last + 1)]


def finish(folder: Path) -> None:
    """Continue after a restart: everything is offered again, divided differently, as after other completions."""
    sink = open_sink(folder)
    check(folder, sink.committed)
    sink.commit([release for step in STEPS for release in step], Position())
    assert sorted(seqs(folder)) == list(range(35))
    assert sink.committed == IntervalSet([(0, 34)])
    sink.close()
    assert not list(folder.glob(".*.tmp"))
    assert open_sink(folder).committed == IntervalSet([(0, 34)])


def states_of(folder: Path, work: Callable[[], object]) -> list[Path]:
    """Return copies of ``folder`` as a kill at each step of ``work`` would leave it."""
    states: list[Path] = []

    def copy(_: str) -> None:
        target = f"{folder}-{len(states)}"
        os.mkdir(target)  # noqa: PTH102 -- pathlib's own calls are watched
        for entry in os.scandir(folder):
            shutil.copyfile(entry.path, f"{target}/{entry.name}")
        states.append(Path(target))

    with watched(copy, copy):
        work()
    return states


def commit_all(sink: FileSink) -> None:
    for step in STEPS:
        sink.commit(step, Position())
    sink.close()


def test_killed_between_any_two_steps_nothing_is_lost_or_doubled(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out")
    states = states_of(tmp_path / "out", lambda: commit_all(sink))
    assert len(states) > 50
    for state in states:
        finish(state)


def test_killed_again_at_any_step_of_the_recovery(tmp_path: Path) -> None:
    sink = open_sink(tmp_path / "out")
    states = states_of(tmp_path / "out", lambda: sink.commit(STEPS[0], Position()))
    second = [again for state in states for again in states_of(state, partial(open_sink, state))]
    assert len(second) > 15
    for again in second:
        finish(again)


class Fault:
    """Fails the n-th system call, before or after it has done its work, and each later one while ``lasting``."""

    def __init__(self, at: int, *, done: bool, lasting: int) -> None:
        self.at, self.done, self.lasting = at, done, lasting
        self.count = 0
        self.hit = False

    def _check(self) -> None:
        if self.at <= self.count < self.at + self.lasting:
            self.hit = True
            raise OSError(28, "No space left on device")

    def before(self, _: str) -> None:
        self.count += 1
        if not self.done:
            self._check()

    def after(self, _: str) -> None:
        if self.done:
            self._check()


def committed_with_faults(sink: FileSink, fault: Fault) -> None:
    """Commit all steps as the delivery does: the same releases again until they are accepted."""
    with watched(fault.before, fault.after):
        for step in STEPS:
            for _ in range(20):
                try:
                    sink.commit(step, Position())
                    break
                except OSError:
                    continue
            else:
                pytest.fail("the sink did not recover")


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("lasting", [1, 3])
def test_a_disk_that_fails_at_any_step_is_tried_again_without_loss_or_doubling(
    tmp_path: Path, done: bool, lasting: int
) -> None:
    for at in range(1, 1000):
        folder = tmp_path / f"out{at}"
        fault = Fault(at, done=done, lasting=lasting)
        sink = open_sink(folder)
        committed_with_faults(sink, fault)
        check(folder, IntervalSet([(0, 34)]))
        assert [name[:10] for name in parts(folder)] == [f"{i:010d}" for i in range(len(parts(folder)))]
        assert open_sink(folder).committed == IntervalSet([(0, 34)])
        if not fault.hit:
            return
    pytest.fail("the faults never ended")


@pytest.mark.parametrize("done", [False, True])
def test_a_disk_that_fails_and_then_a_kill_or_a_close(tmp_path: Path, done: bool) -> None:
    for at in range(1, 1000):
        fault = Fault(at, done=done, lasting=1)
        folder = tmp_path / f"out{at}"
        sink = open_sink(folder)
        with watched(fault.before, fault.after):
            try:
                for step in STEPS:
                    sink.commit(step, Position())
            except OSError:
                pass
        if not fault.hit:
            return
        killed, again = tmp_path / f"killed{at}", tmp_path / f"again{at}"
        shutil.copytree(folder, killed)
        shutil.copytree(folder, again)
        finish(killed)
        sink.close()
        finish(folder)
        regrouped = open_sink(again)
        regrouped.commit([rows(0, 4)], Position())
        finish(again)
    pytest.fail("the faults never ended")


@pytest.mark.parametrize("done", [False, True])
def test_after_a_failure_the_next_commit_may_be_cut_otherwise(tmp_path: Path, done: bool) -> None:
    everything = [release for step in STEPS for release in step]
    for at in range(1, 1000):
        fault = Fault(at, done=done, lasting=1)
        folder = tmp_path / f"out{at}"
        sink = open_sink(folder)
        with watched(fault.before, fault.after):
            try:
                sink.commit(STEPS[0][:1], Position())
            except OSError:
                sink.commit(everything, Position())
        if not fault.hit:
            return
        check(folder, IntervalSet([(0, 34)]))
        finish(folder)
    pytest.fail("the faults never ended")


def test_each_step_is_on_the_disk_before_the_next_believes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut keeps only what was synced, in this order: file, its entry, manifest, its entry, name, its entry."""
    sink = open_sink(tmp_path)
    steps: list[str] = []
    real_fsync, real_rename, real_replace = os.fsync, Path.rename, Path.replace

    def fsync(handle: int) -> None:
        steps.append("sync " + Path(f"/proc/self/fd/{handle}").readlink().name)
        real_fsync(handle)

    def rename(self: Path, target: Path) -> Path:
        steps.append("rename part")
        return real_rename(self, target)

    def replace(self: Path, target: Path) -> Path:
        steps.append("replace manifest")
        return real_replace(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "rename", rename)
    monkeypatch.setattr(Path, "replace", replace)
    sink.commit([rows(0, 9)], Position())
    assert steps == [
        "sync .0000000000-000000000000-000000000009.jsonl.tmp",
        f"sync {tmp_path.name}",
        "sync _manifest.json.tmp",
        "replace manifest",
        f"sync {tmp_path.name}",
        "rename part",
        f"sync {tmp_path.name}",
    ]
