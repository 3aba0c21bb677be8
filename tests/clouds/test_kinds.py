"""The list of unusable machine types is a hint: it survives restarts, and no error in it stops anything."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from infra.clouds.providers.kinds import Kinds
from tests.clouds.ec2_lab import ACCOUNT

SMALL, LARGE = ("m5.large", "a"), ("m5.xlarge", "a")
THERE = dataclasses.replace(ACCOUNT, zones=("a",))
NOW_S = 1_790_000_000.0


def written(file: Path) -> Path:
    Kinds(THERE, file).was_unfit(SMALL, NOW_S)
    return file


def test_what_was_of_no_use_comes_last_and_the_longest_ago_first(tmp_path: Path) -> None:
    kinds = Kinds(THERE, written(tmp_path / "kinds"))
    assert kinds.by_merit(NOW_S + 1) == [LARGE, SMALL]
    kinds.was_unfit(LARGE, NOW_S + 2)
    assert Kinds(THERE, tmp_path / "kinds").by_merit(NOW_S + 3) == [SMALL, LARGE]
    kinds.was_unfit(SMALL, NOW_S + 4)
    assert Kinds(THERE, tmp_path / "kinds").by_merit(NOW_S + 5) == [LARGE, SMALL]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"image": "ami-2"}, False),
        ({"region": "eu-west-2"}, False),
        ({"address": "private"}, False),
        ({"key": "other", "secret": "renewed"}, True),
        ({"sizes": ("m5.xlarge", "m5.large")}, True),
    ],
)
def test_it_is_about_what_the_machines_were_made_of(tmp_path: Path, change: dict[str, Any], kept: bool) -> None:
    account = dataclasses.replace(THERE, sizes=("m5.large", "m5.xlarge"))
    first = Kinds(dataclasses.replace(account, **change), written(tmp_path / "kinds")).by_merit(NOW_S + 1)[0]
    assert first == (LARGE if kept else SMALL)


@pytest.mark.parametrize("off_s", [3601.0, -5.0], ids=["an hour later", "by a clock that was put back"])
def test_it_is_forgotten(tmp_path: Path, off_s: float) -> None:
    assert Kinds(THERE, written(tmp_path / "kinds")).by_merit(NOW_S + off_s) == [SMALL, LARGE]


def test_sizes_that_are_not_named_any_more_mean_nothing(tmp_path: Path) -> None:
    fewer = dataclasses.replace(THERE, sizes=("m5.xlarge",))
    assert Kinds(fewer, written(tmp_path / "kinds")).by_merit(NOW_S) == [LARGE]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"account": 1}', b"\xff"])
def test_a_file_that_cannot_be_read_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    file = tmp_path / "kinds"
    file.write_bytes(content)
    kinds = Kinds(THERE, file)
    assert "is ignored" in caplog.text
    kinds.was_unfit(SMALL, NOW_S)
    assert Kinds(THERE, file).by_merit(NOW_S) == [LARGE, SMALL]


def test_a_disk_that_does_not_take_it_is_said_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = Kinds(THERE, tmp_path / "nowhere" / "kinds")
    kinds.was_unfit(SMALL, NOW_S)
    assert "cannot be written" in caplog.text
    assert kinds.by_merit(NOW_S) == [LARGE, SMALL]


def test_no_secret_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "kinds"
    Kinds(dataclasses.replace(THERE, secret="wJalrXUtnFEMI"), file).was_unfit(SMALL, NOW_S)
    assert b"wJalr" not in file.read_bytes()
