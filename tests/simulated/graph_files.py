"""A small file of graphs, with which tests begin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from gateway.simulate.graphs.model import GraphsFile
from gateway.simulate.graphs.reading import read_graphs

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "graph.yaml"
SMALL = """\
graphs:
  q:
    producers: {p: {instructions: 1000000, rate: 10/s}}
    consumers: {c: {instructions: 1000000}}
    edges: [{from: p, to: c, event: 1kB}]
datacentres:
  oslo: {hosts: {o1: {mips: 1000, cores: 2}}, billing: {period: 1m, usd_per_gb_sent: 1000}}
  rome: {hosts: {r1: {mips: 1000}}}
between: {delay: 3s}
vms:
  a: {datacentre: oslo, mips: 1000, usd_per_hour: 6}
  b: {datacentre: rome, mips: 1000}
tick: 100ms
for: 20s
"""


def graphs(tmp_path: Path, *changes: tuple[str, str]) -> GraphsFile:
    """The small file, read after texts were replaced."""
    return read_graphs(written(tmp_path, *changes))


def written(tmp_path: Path, *changes: tuple[str, str]) -> Path:
    """The path of the small file after texts were replaced."""
    text = SMALL
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    path = tmp_path / "graph.yaml"
    path.write_text(text)
    return path


def document(path: Path) -> Any:
    """The plain content of a YAML file."""
    return YAML(typ="safe").load(path.read_text())
