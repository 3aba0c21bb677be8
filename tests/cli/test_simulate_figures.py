"""What ``spillway simulate`` says of figures that cannot be computed, and of several seeds."""

from __future__ import annotations

import json
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from gateway.simulate.comparing.contest import Contest
from gateway.simulate.comparing.tables import fluid_notes, fluid_table
from gateway.simulate.fluid.world import FluidWorld
from gateway.simulate.options import Machines
from gateway.simulate.runs.promises import NeverAtRestError
from tests.cli.simulating import CONFIG, simulate
from tests.simulated.fluid_worlds import day

BILLING = "billing: {period: 30s, minimum: 30s,"
FLUID = ("--model", "fluid", "--policy", "home,static:1")


def optimum_usd(tmp_path: Path, config: str, *arguments: str) -> float | None:
    report = tmp_path / "report.json"
    result = simulate(tmp_path, *FLUID, "--for", "60s", "--report", str(report), *arguments, config=config)
    assert result.exit_code == 0, result.output
    best = json.loads(report.read_text())["optimum"]
    return None if best is None else float(best["renting_usd"])


def test_the_optimum_pays_for_boots_longer_than_a_billing_period(tmp_path: Path) -> None:
    """As with a cloud that bills by the second, after a minimum that is shorter than a boot."""
    config = CONFIG.replace(BILLING, "billing: {period: 1s, minimum: 10s,").replace("boot: 5s", "boot: 25s")
    usd = optimum_usd(tmp_path, config)
    # Load is 150 a second and home serves 110 from the start on: a VM is paid for 25 s of its boot and for all 60 s.
    assert usd == pytest.approx((25 + 60) * 3.6 / 3600, abs=2 * 3.6 / 3600)


@pytest.mark.parametrize(
    ("billing", "max_vms", "says"),
    [
        (
            "billing: {period: 1s, minimum: 60s,",
            9,
            "too many ways in which up to 9 VMs can each be paid for up to 55 s",
        ),
        ("billing: {period: 400ms, minimum: 400ms,", 1, "a billing period (0.4 s) is shorter than a slot (1 s)"),
    ],
)
def test_why_there_is_no_optimum_is_said_in_words(tmp_path: Path, billing: str, max_vms: int, says: str) -> None:
    config = CONFIG.replace(BILLING, billing).replace("max_vms: 1", f"max_vms: {max_vms}")
    report, page = tmp_path / "report.json", tmp_path / "page.html"
    result = simulate(tmp_path, *FLUID, "--for", "5s", "--report", str(report), "--html", str(page), config=config)
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    assert told["optimum"] is None
    for text in (result.output, told["optimum_missing_because"], page.read_text(encoding="utf-8")):
        assert says in text
    assert "Blocks(" not in result.output


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_without_events_there_is_no_latency(tmp_path: Path, model: str) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("at_s,query,events,bytes\n3,words,0,0\n")
    result = simulate(tmp_path, "--trace", str(trace), "--model", model, "--policy", "home")
    assert result.exit_code == 0, result.output
    (line,) = [line for line in result.output.splitlines() if line.startswith("home")]
    assert "0.00 s" not in line
    assert line.count(" - ") >= 2
    assert "-: no event was answered, so there is no latency." in result.output


def test_events_that_are_never_answered_are_told(tmp_path: Path) -> None:
    """The fluid model stops after a while, and the model of runs gives no figures."""
    options = day()
    (site,) = options.sites
    slow = replace(site, machines=Machines(events_per_s=1.0))
    outcome = FluidWorld(replace(options, sites=(slow,), slots=20, rest_slots=10)).run()
    assert outcome.unanswered > 3000
    contest = Contest({"home": outcome}, None, "nobody asked", 15.0)
    said = fluid_notes([contest], [fluid_table(contest)])
    assert f"home: {outcome.unanswered:,.0f} events were not answered when the simulation stopped" in said[-1]


def test_a_load_that_is_far_too_high_is_not_called_a_bug(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def far_behind(_: object) -> None:
        raise NeverAtRestError("events still wait 86400 s after the last one came")

    monkeypatch.setattr("gateway.simulate.runs.world.World.run", far_behind)
    result = simulate(tmp_path, "--for", "1s")
    assert result.exit_code == 1
    assert "events still wait 86400 s" in result.output
    assert "bug" not in result.output


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_several_seeds_give_the_median_and_the_range(tmp_path: Path, model: str) -> None:
    report, page = tmp_path / "report.json", tmp_path / "page.html"
    arguments = ["--model", model, "--for", "30s", "--policy", "reactive", "--report", str(report)]
    alone = []
    for seed in ("4", "5", "6"):
        assert simulate(tmp_path, *arguments, "--seed", seed).exit_code == 0
        alone.append(json.loads(report.read_text())["reactive"])
    html = ["--html", str(page)] if model == "fluid" else []
    result = simulate(tmp_path, *arguments, "--seed", "4", "--seeds", "3", *html)
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    assert told["seeds"] == [4, 5, 6]
    assert [told["by_seed"][seed]["reactive"] for seed in ("4", "5", "6")] == alone
    means = [one["mean_s"] if model == "fluid" else one["queries"][0]["mean_s"] for one in alone]
    assert len(set(means)) == 3
    found = told["ranges"]["reactive" if model == "fluid" else "reactive, words"]["mean"]
    assert found == {"median": statistics.median(means), "lowest": min(means), "highest": max(means)}
    lines = [line for line in result.output.splitlines() if line.startswith("reactive")]
    for kind, mean_s in zip(("median", "lowest", "highest"), (found[key] for key in found), strict=True):
        (line,) = [line for line in lines if f" {kind} " in line]
        assert f" {mean_s:.2f} s " in line
    if html:
        assert f"{min(means):.2f} s to {max(means):.2f} s" in page.read_text(encoding="utf-8")
