"""The files that the configs of the documentation read."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def make_inputs(document: dict[str, Any], folder: Path) -> None:
    """Create the files and folders that a config reads; they are empty."""
    for query in document["queries"].values():
        sources = [query.get("source", {}), *(stream["source"] for stream in query.get("sources", {}).values())]
        for read in [*sources, *query.get("tables", {}).values()]:
            path = read.get("path", "") if read.get("type", "file") == "file" else ""
            if path.endswith("/"):
                (folder / path).mkdir(parents=True, exist_ok=True)
                (folder / path / "one.parquet").touch()
            elif path:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).touch()
