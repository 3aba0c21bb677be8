from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gateway.config import load
from gateway.config.models import PrivateConfig
from gateway.query.identity import Identity, claim, read_identity
from gateway.query.opening import Opener
from gateway.query.takingover import TakeOver
from infra.statefiles import StateError
from tests.query.one_query import CONFIG
from tests.support.gateway_doubles import ManualClock


def found(folder: Path, sql: str) -> TakeOver:
    """Return what a query finds in its folder, with this definition."""
    document = YAML(typ="safe").load(CONFIG)
    document["queries"]["q"]["sql"] = sql
    with (folder / "config.yaml").open("w") as file:
        YAML(typ="safe").dump(document, file)
    (folder / "in.jsonl").touch()
    config = load(folder / "config.yaml").queries["q"]
    clock = ManualClock()
    opener = Opener("q", config, folder / "q", "", PrivateConfig(), clock, lambda *_: None)
    return TakeOver("q", config, folder / "q", opener, clock)


async def test_elsewhere_it_continues_as_the_same_query_with_the_next_epoch(tmp_path: Path) -> None:
    there = found(tmp_path, "SELECT id FROM events")
    at_home = claim(tmp_path / "q", there.opener.definition)
    away = await there.same_identity()
    assert (away.owner, away.state, away.epoch) == (at_home.owner, at_home.state, at_home.epoch + 1)


async def test_a_query_that_has_changed_continues_nowhere_else(tmp_path: Path) -> None:
    claim(tmp_path / "q", found(tmp_path, "SELECT id FROM events").opener.definition)
    before: Identity | None = read_identity(tmp_path / "q")
    with pytest.raises(StateError, match="has changed since it was opened"):
        await found(tmp_path, "SELECT id, text FROM events").same_identity()
    assert read_identity(tmp_path / "q") == before
