from __future__ import annotations

from pathlib import Path

import pytest

from infra.failpoints import from_environment


def test_the_count_begins_when_the_file_exists(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    rules = from_environment({"SPILLWAY_FAILPOINTS": "sink.commit.after=eio@2", "SPILLWAY_FAILPOINTS_FROM": str(begin)})
    for _ in range(3):
        rules.reached("sink.commit.after")
    begin.touch()
    rules.reached("sink.commit.after")
    with pytest.raises(OSError, match=r"sink\.commit\.after"):
        rules.reached("sink.commit.after")
    rules.reached("sink.commit.after")


def test_without_a_file_it_begins_at_once() -> None:
    rules = from_environment({"SPILLWAY_FAILPOINTS": "sink.commit.after=eio@1"})
    with pytest.raises(OSError, match=r"sink\.commit\.after"):
        rules.reached("sink.commit.after")


def test_a_place_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r'"nowhere=kill@1" is not a failpoint'):
        from_environment({"SPILLWAY_FAILPOINTS": "nowhere=kill@1"})
