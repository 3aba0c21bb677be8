"""The site has every page in its navigation, and what its hook does with links that leave docs/."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from mkdocs.exceptions import PluginError
from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
SITE = ROOT / ".ci" / "site"


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = importlib.util.spec_from_file_location("site_hooks", SITE / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def targets(entry: Any) -> Iterator[str]:
    """The pages that a part of the navigation names."""
    if isinstance(entry, str):
        yield entry
    for below in entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ():
        yield from targets(below)


def shown(hooks: ModuleType, markdown: str, page: str = "clouds.md") -> str:
    """What the hook makes of a page's text."""
    file = SimpleNamespace(generated_by=None, abs_src_path=str(ROOT / "docs" / page))
    return str(hooks.on_page_markdown(markdown, page=SimpleNamespace(file=file)))


def test_every_page_but_the_decisions_is_in_the_navigation(hooks: ModuleType) -> None:
    docs = ROOT / "docs"
    pages = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md") if path.parent.name != "decisions"}
    config = YAML(typ="safe").load(SITE / "mkdocs.yml")
    named = list(targets(config["nav"]))
    assert len(named) == len(set(named))
    assert set(named) - hooks.TO_COME == (pages | set(hooks.BESIDE.values())) - hooks.TO_COME


def test_links_and_anchors_that_lead_nowhere_end_the_build() -> None:
    config = YAML(typ="safe").load(SITE / "mkdocs.yml")
    assert config["strict"] is True
    assert config["validation"]["links"] == dict.fromkeys(
        ("not_found", "anchors", "absolute_links", "unrecognized_links"), "warn"
    )
    # With --quiet, mkdocs does not count its warnings, and the build passes.
    assert "--quiet" not in next(
        line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line
    )


@pytest.mark.parametrize(
    ("page", "markdown", "becomes"),
    [
        ("clouds.md", "[policies](policies.md#windows)", "[policies](policies.md#windows)"),
        ("clouds.md", "[the image](../docker/image/README.md)", "the image (`docker/image/README.md`)"),
        ("clouds.md", "[how it works](../ARCHITECTURE.md)", "[how it works](architecture.md)"),
        ("results/state.md", "[how it works](../../ARCHITECTURE.md)", "[how it works](../architecture.md)"),
        ("clouds.md", "[elsewhere](https://spark.apache.org/)", "[elsewhere](https://spark.apache.org/)"),
        ("clouds.md", "[reasons](decisions)", "reasons (`docs/decisions`)"),
    ],
)
def test_links_that_leave_the_documents(hooks: ModuleType, page: str, markdown: str, becomes: str) -> None:
    assert shown(hooks, markdown, page) == becomes


def test_a_link_to_a_file_that_does_not_exist_is_refused(hooks: ModuleType) -> None:
    with pytest.raises(PluginError, match="leads nowhere"):
        shown(hooks, "[the image](../docker/no-such-file.md)")
