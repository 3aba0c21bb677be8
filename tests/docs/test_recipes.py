"""The recipes and the first steps are whole configs, which `spillway check` accepts as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from ruamel.yaml import YAML
from typer.testing import CliRunner

from gateway.cli import main
from tests.support.docs_inputs import make_inputs
from tests.support.documents import ROOT, Block, blocks

WHOLE = [block for block in blocks("yaml") if block.path.parent.name == "recipes" or block.path.name == "start.md"]


@pytest.mark.parametrize("block", WHOLE, ids=str)
def test_it_passes_the_check(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in re.findall(r"\$\{(\w+)", block.text):
        monkeypatch.setenv(name, "some-value")
    make_inputs(YAML(typ="safe").load(block.text), tmp_path)
    path = tmp_path / "config.yaml"
    path.write_text(block.text)
    said = CliRunner().invoke(main, ["check", str(path), "--no-plan"])
    assert (said.exit_code, said.output.startswith(f"{path}: ok")) == (0, True), said.output


def test_each_recipe_has_one_config_and_is_in_the_index() -> None:
    pages = [path for path in (ROOT / "docs" / "recipes").glob("*.md") if path.name != "index.md"]
    index = (ROOT / "docs" / "recipes" / "index.md").read_text()
    assert len(pages) >= 6
    assert [path.name for path in pages if sum(block.path == path for block in WHOLE) != 1] == []
    assert [path.name for path in pages if f"({path.name})" not in index] == []
