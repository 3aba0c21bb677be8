"""On a disk that really is full, the gateway's half of a query waits, says why, and continues once there is room."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.file_parts import parts

EVENTS = 3_000
BAD_EVERY = 500
DEADLINE_S = 120.0
# A mount of its own that nobody else sees, and that goes with the shell. The input is put there before the disk is
# filled, the program begins when it is told to, and its files stay until they were looked at.
SHELL = """
mount -t tmpfs -o size=6m tmpfs "$1" && cp "$2" "$1/" && echo mounted && read -r line || exit 1
disk="$1"; shift 2; "$@" "$disk" </dev/null; echo "ended $?"; read -r line
"""


def in_namespace() -> list[str]:
    """Return the command that runs a process with its own mounts, or fail."""
    command = ["unshare", "-m"] if os.geteuid() == 0 else ["unshare", "-Urm"]
    tried = subprocess.run([*command, "true"], capture_output=True, text=True, check=False)
    assert tried.returncode == 0, f"no private mounts here: {tried.stderr}"
    return command


class Starved:
    """The process with a separate disk."""

    def __init__(self, folder: Path, failpoints: str = "") -> None:
        disk = folder / "disk"
        disk.mkdir()
        program = [sys.executable, "-W", "error", str(Path(__file__).parents[1] / "support" / "gateway_process.py")]
        self._shell = subprocess.Popen(
            [*in_namespace(), "sh", "-c", SHELL, "sh", str(disk), str(folder / "in.jsonl.gz"), *program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "SPILLWAY_FAILPOINTS": failpoints},
        )
        self.said: list[str] = []
        self._listening = threading.Thread(target=self._listen)
        self._listening.start()
        self.until(lambda: "mounted" in self.said, "the disk is there")
        self.disk = Path(f"/proc/{self._shell.pid}/root{disk}")

    def _listen(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self.said.append(line.strip())

    def until(self, condition: Callable[[], bool], what: str) -> None:
        give_up_s = time.monotonic() + DEADLINE_S
        while not condition():
            assert self._shell.poll() is None, f"the shell ended before {what}: {self.said}"
            assert time.monotonic() < give_up_s, f"not in time: {what}; it said {self.said}"
            time.sleep(0.005)

    def say(self) -> None:
        """Let the shell continue."""
        assert self._shell.stdin is not None
        self._shell.stdin.write("\n")
        self._shell.stdin.flush()

    def fill(self) -> None:
        """Fill the disk to the last byte."""
        with (self.disk / "ballast").open("ab", buffering=0) as file:
            for size_bytes in (1 << 16, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size_bytes))
                except OSError:
                    continue

    def in_trouble(self) -> bool:
        return self.said[-1].startswith("trouble: ")

    def parts(self) -> list[str]:
        return parts(self.disk / "out") if (self.disk / "out").exists() else []

    @property
    def ended(self) -> bool:
        return self.said[-1].startswith("ended")

    def close(self) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        self._shell.kill()
        self._shell.wait()
        self._listening.join()
        assert self._shell.stdout is not None
        self._shell.stdout.close()


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """The input: events, and some lines that are not events."""
    lines = []
    for i in range(EVENTS):
        lines.append(json.dumps({"id": i, "text": "x" * (i % 50)}))
        if i % BAD_EVERY == 3:
            lines.append(f"no event {i}")
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    return lines


@pytest.fixture
def starve(tmp_path: Path) -> Iterator[Callable[..., Starved]]:
    made: list[Starved] = []

    def make(failpoints: str = "") -> Starved:
        made.append(Starved(tmp_path, failpoints))
        return made[-1]

    yield make
    for starved in made:
        starved.close()


def assert_exact(starved: Starved, lines: list[str]) -> None:
    """Check that both passes over the input are in the sink, or among the dead letters, once."""
    out = starved.disk / "out"
    ids = [json.loads(text)["id"] for name in parts(out) for text in (out / name).read_text().splitlines()]
    assert sorted(ids) == sorted([*range(EVENTS), *range(EVENTS)])
    letters = [json.loads(text) for text in (starved.disk / "dead.jsonl").read_bytes().splitlines()]
    bad = [i for i, text in enumerate(lines) if text.startswith("no event")]
    assert [letter["record"] for letter in letters] == [*bad, *(len(lines) + i for i in bad)]
    assert [letter["raw"] for letter in letters] == 2 * [lines[i] for i in bad]
    assert not list(starved.disk.rglob("*.tmp"))


def test_a_full_disk_is_waited_out_again_and_again(starve: Callable[..., Starved], lines: list[str]) -> None:
    starved = starve()
    starved.say()
    for time_full in range(3):
        there = len(starved.parts())
        starved.until(lambda there=there: len(starved.parts()) > there, "another part")  # type: ignore[misc]

        def full() -> bool:
            starved.fill()  # again and again: what fails gives some bytes back
            return starved.in_trouble()

        starved.until(full, "it is in trouble")
        assert "No space left on device" in starved.said[-1]
        assert not starved.ended
        (starved.disk / "ballast").unlink()
        starved.until(lambda: not starved.in_trouble(), "all is well again")
        assert len([text for text in starved.said if text == "well"]) > time_full
    starved.until(lambda: starved.ended, "it is done")
    assert starved.said[-1] == "ended 0"
    assert_exact(starved, lines)


@pytest.mark.parametrize(
    "failpoints",
    [
        "runlog.append.before=enospc@3-5 runlog.append.written=eio@20-22 runlog.append.after=eio@40",
        "runlog.rewrite.before=enospc@1-4 runlog.rewrite.after=eio@6-7",
        "deadletters.append.before=enospc@1-3 deadletters.append.written=eio@5-7 deadletters.append.after=eio@9",
        "sink.commit.before=eio@2-3 sink.commit.prepared=enospc@2-4 sink.commit.visible=eio@3-5",
    ],
)
def test_a_disk_that_fails_at_any_step_is_waited_out(
    starve: Callable[..., Starved], lines: list[str], failpoints: str
) -> None:
    starved = starve(failpoints)
    starved.say()
    starved.until(lambda: starved.ended, "it is done")
    assert starved.said[-1] == "ended 0"
    # A rewrite that only makes the log shorter keeps nothing waiting.
    assert any("failpoint" in text for text in starved.said) or "rewrite" in failpoints
    assert_exact(starved, lines)
