"""One name, one meaning: no two public classes of the four packages have the same name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("gateway", "engines", "policies", "infra")


def public_classes() -> dict[str, list[str]]:
    """Return the modules that define each public class at their top level, by its name."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.parse(path.read_text()).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    found[node.name].append(str(path.relative_to(ROOT)))
    return found


def test_no_two_public_classes_have_the_same_name() -> None:
    classes = public_classes()
    assert classes["Exchange"] == ["gateway/core/exchange/exchange.py"]
    assert {name: places for name, places in classes.items() if len(places) > 1} == {}
