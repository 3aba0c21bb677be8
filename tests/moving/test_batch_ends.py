from __future__ import annotations

from pathlib import Path

import pytest

from gateway.query.moving.batchends import BatchEnds, needed_after
from policies.signals import HOME


@pytest.fixture
def ends(tmp_path: Path) -> BatchEnds:
    return BatchEnds(tmp_path / "away")


def test_ends_are_read_by_the_next_gateway(ends: BatchEnds, tmp_path: Path) -> None:
    ends.keep_after(0)
    ends.append([10, 25])
    ends.append([40])
    assert BatchEnds(tmp_path / "away").read() == (10, 25, 40)


def test_a_query_that_never_moved_has_none(ends: BatchEnds) -> None:
    assert ends.read() == ()


def test_a_line_that_a_crash_cut_off_does_not_count_and_is_overwritten(ends: BatchEnds, tmp_path: Path) -> None:
    ends.append([10, 25])
    with (tmp_path / "away").open("ab") as file:
        file.write(b"4")
    assert ends.read() == (10, 25)
    ends.append([31])
    assert ends.read() == (10, 25, 31)


def test_ends_that_a_checkpoint_at_home_has_are_forgotten(ends: BatchEnds) -> None:
    ends.append([10, 25, 40])
    ends.keep_after(25)
    assert ends.read() == (40,)
    ends.keep_after(40)
    assert ends.read() == ()


def test_the_ends_since_the_oldest_checkpoint_at_home_are_kept_when_parts_are_opened() -> None:
    # The second part goes on at 90 on its VM, but at 40 at home if the VM is lost. The third has come home from 90.
    assert needed_after((HOME, "vm-1", HOME), (100, 90, 90), (0, 40, 30)) == 40
    assert needed_after((HOME, HOME), (100, 90), (0, 0)) == 90
