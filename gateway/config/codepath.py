"""Where a user's functions are found."""

from __future__ import annotations

from pathlib import Path


def code_path_for(function: str | None, folder: Path) -> str:
    """Return the config's folder when a function's module is in it; empty when it is on the module path."""
    top = (function or "").partition(":")[0].partition(".")[0]
    own = bool(top) and ((folder / top).is_dir() or (folder / f"{top}.py").is_file())
    return str(folder) if own else ""
