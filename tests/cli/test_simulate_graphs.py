"""``spillway simulate`` with a file of graphs."""

from __future__ import annotations

import json
import re
from pathlib import Path

from typer.testing import CliRunner, Result

from gateway.cli import main
from tests.simulated.graph_files import SMALL, written


def simulated(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["simulate", str(path), *arguments])


def test_graphs_are_told_in_a_table_in_json_and_on_a_page(tmp_path: Path) -> None:
    report, html = tmp_path / "report.json", tmp_path / "page.html"
    result = simulated(written(tmp_path), "--for", "10s", "--report", str(report), "--html", str(html))
    assert result.exit_code == 0, result.output
    assert re.search(r"^q\.c +100 +0\.00 s +10\.0/s$", result.output, re.MULTILINE), result.output
    told = json.loads(report.read_text())
    assert [told["lasted_s"], len(told["consumers"][0]["by_second"])] == [10, 10]
    assert told["consumers"][0]["by_second"][3]["throughput_per_s"] == 10
    page = html.read_text()
    assert "Waiting events" in page
    assert "q.c" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']http", page), "the page needs the network"


def test_the_seed_draws_arrivals(tmp_path: Path) -> None:
    path = written(tmp_path, ("rate: 10/s", "rate: 10/s, arrivals: poisson"))
    first, again, other = (simulated(path, "--seed", seed).output for seed in ("1", "1", "2"))
    assert first == again != other


def test_mistakes_are_told_with_exit_code_2(tmp_path: Path) -> None:
    path = written(tmp_path)
    for arguments, says in (
        (("--served", "100/s"), "--served: only for a gateway's config"),
        (("--policy", "home", "--seeds", "2"), "--policy, --seeds: only for a gateway's config"),
        (("--model", "fluid", "--policy", "home"), "--model, --policy"),
        (("--for", "10"), '--for: "10" is not a duration'),
        (("--for", "25h"), "for: is longer than 24h"),
    ):
        result = simulated(path, *arguments)
        assert (result.exit_code, says in result.output) == (2, True), result.output
    path.write_text(SMALL.replace("graphs:", "graph:"))
    assert "is neither a gateway's config" in simulated(path).output
    path.write_text(SMALL.replace("mips: 1000, usd", "mips: 9000, usd"))
    result = simulated(path)
    assert (result.exit_code, "use a smaller VM" in result.output) == (2, True), result.output


def test_a_report_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    result = simulated(written(tmp_path), "--report", str(tmp_path / "no" / "report.json"))
    assert (result.exit_code, "No such file" in result.output) == (1, True), result.output
