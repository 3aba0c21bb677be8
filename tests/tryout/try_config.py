"""A config for the tests of ``spillway try``: one query, and what of it differs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gateway.config import Config, load

SCHEMA = "id STRING, n INT"


def query(**said: Any) -> dict[str, Any]:
    """The section of a query; with ``sources`` it has no source and schema of its own."""
    own = {} if "sources" in said else {"source": {"type": "file", "path": "in.jsonl"}, "schema": SCHEMA}
    ends = {"sink": {"type": "file", "path": "out"}, "qos": {"latency": "2s"}}
    return {"sql": "SELECT id, n * 2 AS twice FROM events", **own, **ends, **said}


def config_with(folder: Path, /, **queries: dict[str, Any]) -> Config:
    """A config file in the folder, loaded; JSON is YAML."""
    path = folder / "config.yaml"
    path.write_text(json.dumps({"gateway": {"state_dir": "state"}, "queries": queries}))
    return load(path)


def put(path: Path, *lines: str) -> Path:
    """A file of lines."""
    path.write_text("".join(f"{line}\n" for line in lines))
    return path
