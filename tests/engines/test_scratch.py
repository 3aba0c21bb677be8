"""Folders in memory are removed with the process that made them, however it ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engines.spark.scratch import scratch_folder, sweep

PROGRAM = "from engines.spark.scratch import scratch_folder; print(scratch_folder('x'), flush=True); input()"


def test_only_folders_of_processes_that_are_gone_are_swept() -> None:
    mine = scratch_folder("mine")
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        theirs = Path(other.stdout.readline().decode().strip())
        sweep()
        assert theirs.is_dir()
        other.kill()
        other.wait(30)
        assert theirs.is_dir()
        sweep()
    assert not theirs.parent.exists()
    assert mine.is_dir()


def test_an_orderly_end_leaves_nothing() -> None:
    # A process of its own: the folders of this one are in use by other tests.
    program = (
        "from engines.spark.scratch import remove_own, scratch_folder; folder = scratch_folder('end'); "
        "(folder / 'file').write_text('x'); remove_own(); "
        "print(folder.parent.exists(), scratch_folder('again').is_dir())"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert said.stdout.split() == ["False", "True"]
