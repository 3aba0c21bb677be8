"""Results of a definition are written in the output mode that they were computed in."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from ruamel.yaml import YAML

from gateway.config import load
from gateway.config.models import QueryConfig
from gateway.connectors.position import Position
from gateway.core.exchange.reorder import Released
from gateway.query.endpoints import Endpoints
from gateway.query.identity import claim, read_identity
from gateway.query.opening import definition_of
from infra.messages import APPEND, OutputMode
from tests.query.one_query import CONFIG
from tests.support.gateway_doubles import ManualClock

UPDATE = {"mode": "update", "key": ["n"]}


def configured(folder: Path, output: dict[str, Any]) -> QueryConfig:
    document = YAML(typ="safe").load(CONFIG)
    document["queries"]["q"]["output"] = output
    with (folder / "config.yaml").open("w") as file:
        YAML(typ="safe").dump(document, file)
    (folder / "in.jsonl").touch()
    return load(folder / "config.yaml").queries["q"]


async def written(config: QueryConfig, folder: Path, seq: int) -> list[dict[str, Any]]:
    """Write a result with the identity that is on disk, and return what is in the sink then."""
    identity = read_identity(folder / "q")
    assert identity is not None
    endpoints = Endpoints("q", config, folder / "q", ManualClock(), lambda _: (Path(), bool), lambda: "")
    async with AsyncExitStack() as undo:
        sink = await endpoints.open_sink(identity, undo, stateful=True)
        rows = pa.RecordBatch.from_pylist([{"n": seq}])
        await sink.commit([Released(seq, seq, rows, late=False)], Position(seq + 1))
    lines = [line for part in sorted((folder / "out").glob("[0-9]*")) for line in part.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("output", "added"),
    [
        ({"mode": "append"}, {}),
        (UPDATE, {"_op": "U", "_seq": 0}),
    ],
)
async def test_a_row_of_the_present_definition(tmp_path: Path, output: dict[str, Any], added: dict[str, Any]) -> None:
    config = configured(tmp_path, output)
    claim(tmp_path / "q", definition_of("q", config, "", tmp_path))
    assert await written(config, tmp_path, 0) == [{"n": 0, **added}]


async def test_a_changed_mode_applies_to_the_new_definition_alone(tmp_path: Path) -> None:
    config = configured(tmp_path, UPDATE)
    new = definition_of("q", config, "", tmp_path)
    assert new.output == OutputMode(mode="update", key=("n",))
    old = msgspec.structs.replace(new, output=APPEND)
    claim(tmp_path / "q", old)
    assert await written(config, tmp_path, 0) == [{"n": 0}], "the old definition finishes what was read"
    claim(tmp_path / "q", new)
    assert await written(config, tmp_path, 1) == [{"n": 0}, {"n": 1, "_op": "U", "_seq": 1}]
