"""The parts that a file sink has written, by name."""

from __future__ import annotations

from pathlib import Path

from gateway.sinks.parts.filesink import PartName


def parts(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if PartName.parse(path.name))
