"""The question whether executors share a folder; test_cluster.py asks executors that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engines.streaming.checkpoints import CheckpointError
from engines.streaming.sharedfolder import NotSharedError, SharedFolder

pytestmark = pytest.mark.spark


def test_executors_are_asked_once_and_nothing_is_left(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "q"
    shared = SharedFolder(spark, folder)
    shared.check()
    assert list(folder.iterdir()) == []
    folder.rmdir()
    shared.check()
    assert not folder.exists(), "the same executors are not asked again"


def test_executors_that_do_not_answer_in_time_are_not_waited_for(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(NotSharedError, match=r"not all executors of local\[2\] said within 0 s whether they share"):
        SharedFolder(spark, tmp_path / "q", within_s=0.0).check()
    SharedFolder(spark, tmp_path / "q").check()


def test_a_folder_that_this_machine_cannot_use_is_named(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=f"the folder {tmp_path / 'none'} does not exist: create it, or mount it"):
        SharedFolder(spark, tmp_path / "none" / "q").check()
    (tmp_path / "file").touch()
    with pytest.raises(NotSharedError, match=f"this machine cannot write to {tmp_path / 'file' / 'q'}"):
        SharedFolder(spark, tmp_path / "file" / "q").check()
