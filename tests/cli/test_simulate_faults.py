"""``faults:`` in a file of ``spillway simulate --parameters``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.simulate.options import Faults
from gateway.simulate.parameters.calibration import CalibrationError, read_calibration
from tests.cli.simulating import simulate

POLICY = ("--policy", "static:1")


def file(tmp_path: Path, text: str, name: str = "faults.yaml") -> Path:
    path = tmp_path / name
    path.write_text(text)
    return path


def played(tmp_path: Path, faults: str, *arguments: str, rate: int = 150) -> tuple[dict[str, Any], str]:
    report = tmp_path / "report.json"
    given = ("--parameters", str(file(tmp_path, f"faults: {faults}"))) if faults else ()
    replay = f"replay: {{rate: {rate}/s}}"
    result = simulate(tmp_path, *POLICY, "--for", "100s", "--report", str(report), *given, *arguments, replay=replay)
    assert result.exit_code == 0, result.output
    return json.loads(report.read_text()), result.output


def test_what_goes_wrong_is_counted_and_compared_with_the_same_seed_without(tmp_path: Path) -> None:
    calm, _ = played(tmp_path, "")
    told, said = played(tmp_path, "{launches_fail: 40%, hosts_die_every: 40s, reclaimed_every: 30s}", "--seed", "1")
    faulty = told["static:1"]
    counts = faulty["faults"]
    assert counts["launches_failed"] > 0
    assert counts["home_died"] > 0
    assert counts["vms_died"] + counts["reclaimed"] > 0
    assert counts["notices"] == counts["launches_hung"] == 0
    (query,) = faulty["queries"]
    assert query["again_events"] > 0
    assert told["without faults"]["static:1"] == calm["static:1"]
    assert calm["static:1"]["queries"][0]["again_events"] == 0
    line = said.splitlines()[said.splitlines().index(next(x for x in said.splitlines() if x.startswith("faults"))) + 1]
    more_s = query["mean_s"] - calm["static:1"]["queries"][0]["mean_s"]
    assert more_s > 0
    assert f" {query['again_events']:,} " in line
    assert f" {more_s:+.2f} s " in line


def test_a_vm_that_is_never_ready_is_billed(tmp_path: Path) -> None:
    told, _ = played(tmp_path, "{launches_hang: 100%}")
    hung = told["static:1"]
    assert hung["faults"]["launches_hung"] == hung["vms"] >= 1
    assert hung["usd"] > 0
    assert hung["queries"][0]["cloud_events"] == 0


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_a_notice_spares_what_would_be_sent_again(tmp_path: Path, model: str) -> None:
    again, reclaimed = [], []
    for notice in ("", ", notice: 15s"):
        told, _ = played(tmp_path, f"{{reclaimed_every: 20s{notice}}}", "--model", model, rate=300)
        (query,) = told["static:1"]["queries"]
        counts = told["static:1"]["faults"]
        assert bool(counts["notices"]) is bool(notice)
        again.append(query["again_events"])
        reclaimed.append(counts["reclaimed"])
    assert reclaimed[0] > 0
    assert again[1] < again[0]


def test_the_fluid_model_says_what_it_does_not_simulate(tmp_path: Path) -> None:
    path = file(tmp_path, "faults: {launches_hang: 1%, hosts_die_every: 2h}")
    result = simulate(tmp_path, "--parameters", str(path), "--model", "fluid")
    assert result.exit_code == 2
    assert "does not simulate launches_hang and hosts_die_every: use --model runs" in result.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("faults", "says"),
    [
        ("{notice: 2min}", "without reclaimed_every nothing is announced"),
        ("{reclaimed_every: 0s}", r"faults\.reclaimed_every: Input should be greater than 0"),
        ("{launches_fail: 0.2}", r"faults\.launches_fail: .* is not a share"),
        ("{launches_fails: 2%}", r"faults\.launches_fails: Extra inputs"),
    ],
)
def test_wrong_faults_are_refused(tmp_path: Path, faults: str, says: str) -> None:
    with pytest.raises(CalibrationError, match=says):
        read_calibration(file(tmp_path, f"faults: {faults}"))


def test_of_several_files_the_last_one_counts(tmp_path: Path) -> None:
    cost = "{batch_s: 0.1, event_s: 0.01, events_per_s: 100, instructions_per_event: 1}"
    first = file(tmp_path, f"queries: {{a: {cost}, b: {cost}}}\nvm_speed: 0.5\nfaults: {{launches_fail: 2%}}", "1.yaml")
    other = cost.replace("0.1,", "0.2,")
    second = file(tmp_path, f"queries: {{b: {other}}}\nfaults: {{reclaimed_every: 2h, notice: 2min}}", "2.yaml")
    read = read_calibration(first, second)
    assert {name: query.batch_s for name, query in read.queries.items()} == {"a": 0.1, "b": 0.2}
    assert read.vm_speed == 0.5
    assert read.faults.faults == Faults(reclaim_per_s=1 / 7200, notice_s=120.0)
