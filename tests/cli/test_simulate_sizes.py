"""``spillway simulate`` of a config whose cloud has sizes: VMs and prices by size, and sizes that are sold out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.simulating import CONFIG, simulate

EC2 = """\
  provider: ec2
  credentials: {key: '${KEY}', secret: '${SECRET}'}
  region: us-east-1
  image: ami-1
  sizes: [c5.large, m6i.large]
  max_vms: 1
  boot: 5s
  billing: {period: 30s, minimum: 30s, usd_per_gb_sent: 0}
"""
FIRST_USD, OTHER_USD = 0.085, 0.096
"""Amazon's list prices in Virginia."""


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "AK")
    monkeypatch.setenv("SECRET", "sk")


def at_ec2() -> str:
    begin, end = CONFIG.index("  provider"), CONFIG.index("  budget")
    return CONFIG[:begin] + EC2 + CONFIG[end:]


def played(tmp_path: Path, *arguments: str, sold_out: str = "") -> Result:
    faults = tmp_path / "faults.yaml"
    faults.write_text(f"faults: {{sold_out: {{{sold_out}}}}}")
    given = ("--for", "60s", "--policy", "static:1", "--parameters", str(faults))
    return simulate(tmp_path, *given, *arguments, config=at_ec2())


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_each_vm_is_billed_at_the_price_of_its_size(tmp_path: Path, model: str) -> None:
    report, page = tmp_path / "report.json", tmp_path / "page.html"
    html = ("--html", str(page)) if model == "fluid" else ()
    result = played(tmp_path, "--model", model, "--report", str(report), *html, sold_out="c5.large: 100%")
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    first, other = told["static:1"]["sizes"]
    assert first == {"size": "c5.large", "usd_per_hour": FIRST_USD, "vms": 0}
    assert other == {"size": "m6i.large", "usd_per_hour": OTHER_USD, "vms": 1}
    lines = result.output.splitlines()
    at = next(at for at, line in enumerate(lines) if line.startswith("VMs by size"))
    assert [line.split() for line in lines[at + 1 : at + 3]] == [
        ["static:1", "c5.large", "0", "0.0850"],
        ["static:1", "m6i.large", "1", "0.0960"],
    ]
    # The twin without faults gets the first size, for as long.
    calm = told["without faults"]["static:1"]
    assert [one["vms"] for one in calm["sizes"]] == [1, 0]
    assert told["static:1"]["usd"] / calm["usd"] == pytest.approx(OTHER_USD / FIRST_USD)
    if model == "fluid":
        assert "VMs by size" in page.read_text()


def test_several_seeds_have_ranges_of_sizes(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    result = played(tmp_path, "--seeds", "6", "--report", str(report), "--model", "fluid", sold_out="c5.large: 50%")
    assert result.exit_code == 0, result.output
    ranges = json.loads(report.read_text())["ranges_of_sizes"]
    assert set(ranges) == {"static:1, c5.large", "static:1, m6i.large"}
    first = ranges["static:1, c5.large"]["VMs"]
    assert (first["lowest"], first["highest"]) == (0, 1)


def test_a_size_that_the_config_does_not_have_is_refused(tmp_path: Path) -> None:
    wrong = played(tmp_path, sold_out="c5.lagre: 50%")
    assert wrong.exit_code == 2
    said = " ".join(wrong.output.split())
    assert 'faults.sold_out: there is no size "c5.lagre"; the sizes are c5.large, m6i.large' in said
    none = simulate(tmp_path, "--parameters", str(tmp_path / "faults.yaml"))
    assert none.exit_code == 2
    assert "the config has no cloud.sizes" in " ".join(none.output.split())
    much = played(tmp_path, sold_out="c5.large: 120%")
    assert much.exit_code == 2
    assert "sold_out.c5.large" in much.output
