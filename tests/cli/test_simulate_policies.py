"""``spillway simulate --policy``: policies with the same events, the page with charts, and measured parameters."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engines.simulated.boot import BootTimes, Evenly, LogNormal, MeasuredTimes
from gateway.cli import main
from gateway.config.load import load
from gateway.simulate.parameters.calibration import (
    Calibration,
    CalibrationError,
    Measured,
    read_calibration,
    write_calibration,
)
from gateway.simulate.plan import plan
from tests.cli.simulating import CONFIG, simulate


def test_policies_are_compared_on_the_same_events(tmp_path: Path) -> None:
    report, html = tmp_path / "report.json", tmp_path / "report.html"
    result = simulate(
        tmp_path,
        "--model",
        "fluid",
        "--for",
        "90s",
        "--policy",
        "home, reactive,static:1",
        "--report",
        str(report),
        "--html",
        str(html),
    )
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    home, reactive, static, optimum = (told[name] for name in ("home", "reactive", "static:1", "optimum"))
    assert home["queries"][0]["events"] == pytest.approx(reactive["queries"][0]["events"])
    assert home["usd"] == 0 < reactive["usd"] <= static["usd"]
    assert static["mean_s"] < reactive["mean_s"] < home["mean_s"]
    assert reactive["commands"][0]["kind"] == "StartVm"
    assert reactive["commands"][0]["command"]["cause"]["why"]
    # Load is 150 a second, home serves 110: one VM is needed all the time, and it must be paid for as long.
    assert optimum["renting_usd"] == pytest.approx(3.6 * 90 / 3600, abs=3.6 * 30 / 3600 + 1e-9)
    page = html.read_text()
    assert "Latency over cost" in page
    assert "StartVm" in page
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=[\"']http", page), "the page needs the network"


def spiky_trace(path: Path, slots: int) -> Path:
    """60 events a second, and 220 in two spikes of 40 s; home serves 110."""
    rates = [220 if at % 120 >= 60 and at % 120 < 100 else 60 for at in range(slots)]
    path.write_text("at_s,query,events,bytes\n" + "".join(f"{at},words,{n},{900 * n}\n" for at, n in enumerate(rates)))
    return path


@pytest.mark.parametrize("policy", ["reactive", "planner", "queueing", "cpu", "static"])
def test_each_policy_plays_a_trace_and_is_told(tmp_path: Path, policy: str) -> None:
    report, html, trace = tmp_path / "report.json", tmp_path / "report.html", spiky_trace(tmp_path / "trace.csv", 240)
    result = simulate(
        tmp_path,
        "--model",
        "fluid",
        "--trace",
        str(trace),
        "--policy",
        f"home,{policy}",
        "--report",
        str(report),
        "--html",
        str(html),
    )
    assert result.exit_code == 0, result.output
    told = json.loads(report.read_text())
    home, other = told["home"], told[policy]
    assert other["queries"][0]["events"] == pytest.approx(2 * 40 * 220 + 160 * 60)
    assert other["queries"][0]["cloud_events"] > 0
    assert other["mean_s"] < 0.7 * home["mean_s"]
    assert {command["kind"] for command in other["commands"]} >= {"StartVm", "SetRoute", "TerminateVm"}
    assert other["usd"] == pytest.approx(other["points"][-1]["usd"])
    # 30 s cost 0.03 USD; what lived for the whole trace was rented for at most three periods more than it lasts.
    assert 0 < other["usd"] <= 0.03 * (240 / 30 + 3)
    assert policy in html.read_text()


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ("best", 'no policy "best"'),
        ("static:9", "9 are more than cloud.max_vms"),
        ("reactive:2", "only static takes a number"),
    ],
)
def test_a_policy_that_cannot_be_had_is_refused(tmp_path: Path, policy: str, says: str) -> None:
    result = simulate(tmp_path, "--for", "5s", "--policy", policy)
    assert result.exit_code == 2
    assert says in result.output.replace("\n", " ")


def measured_words(path: Path) -> Path:
    words = Measured(batch_s=0.02, event_s=1 / 110, events_per_s=110, instructions_per_event=2.3e7, event_bytes=700)
    write_calibration(Calibration(queries={"words": words}), path)
    return path


def words_config(tmp_path: Path) -> Path:
    config = tmp_path / "words.yaml"
    config.write_text(CONFIG.replace("REPLAY", "replay: {rate: 150/s}"))
    (tmp_path / "in.jsonl").touch()
    return config


def simulate_measured(tmp_path: Path, parameters: Path) -> Result:
    command = [
        "simulate",
        str(words_config(tmp_path)),
        "--for",
        "20s",
        "--policy",
        "home",
        "--parameters",
        str(parameters),
    ]
    return CliRunner().invoke(main, command)


def test_measured_parameters_replace_served(tmp_path: Path) -> None:
    parameters = measured_words(tmp_path / "words.profile.yaml")
    assert simulate_measured(tmp_path, parameters).exit_code == 0
    parameters.write_text(parameters.read_text().replace("words:", "wrods:"))
    refused = simulate_measured(tmp_path, parameters)
    assert refused.exit_code == 2
    assert 'no query "wrods"' in refused.output
    write_calibration(Calibration(), parameters)
    refused = simulate_measured(tmp_path, parameters)
    assert refused.exit_code == 2
    assert "give --served" in refused.output.replace("\n", " ")


@pytest.mark.parametrize(
    ("boot", "times"),
    [
        ("{type: lognormal, spread: 0.5}", LogNormal(0.5)),
        ("{type: uniform, least: 0.5, most: 2}", Evenly(0.5, 2.0)),
        ("{type: measured, times_s: [31, 40.5]}", MeasuredTimes((31.0, 40.5))),
    ],
)
def test_parameters_say_how_boot_times_spread(boot: str, times: BootTimes, tmp_path: Path) -> None:
    parameters = measured_words(tmp_path / "words.profile.yaml")
    with parameters.open("a") as file:
        file.write(f"boot: {boot}\n")
    world = plan(
        load(words_config(tmp_path)), served_per_s=None, for_s=1.0, seed=1, calibration=read_calibration(parameters)
    )
    assert world.machines.boot == times
    parameters.write_text(f"boot: {boot.replace(': 0.5', ': -1').replace('[31', '[-31')}\n")
    with pytest.raises(CalibrationError, match="boot"):
        read_calibration(parameters)


def test_parameters_say_how_fast_a_vm_is(tmp_path: Path) -> None:
    parameters = measured_words(tmp_path / "words.profile.yaml")
    parameters.write_text(parameters.read_text().replace("vm_speed: 1.0", "vm_speed: 0.4"))
    world = plan(
        load(words_config(tmp_path)), served_per_s=None, for_s=1.0, seed=1, calibration=read_calibration(parameters)
    )
    assert world.machines.vm_speed == 0.4
    parameters.write_text(parameters.read_text().replace("vm_speed: 0.4", "vm_speed: 0"))
    with pytest.raises(CalibrationError, match="vm_speed"):
        read_calibration(parameters)


def test_a_calibration_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = measured_words(tmp_path / "p.yaml")
    assert read_calibration(path).queries["words"].batch_s == 0.02
    path.write_text("queries: {words: {batch_s: -1, event_s: 1, events_per_s: 1, instructions_per_event: 1}}")
    with pytest.raises(CalibrationError, match=r"queries\.words\.batch_s"):
        read_calibration(path)
    with pytest.raises(CalibrationError, match="cannot be read"):
        read_calibration(tmp_path / "nowhere.yaml")


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_announced_load_is_simulated_at_its_time(tmp_path: Path, model: str) -> None:
    """The load doubles two minutes after six in the evening."""
    rates = [220 if 120 <= at < 160 else 60 for at in range(240)]
    trace, report = tmp_path / "trace.csv", tmp_path / "report.json"
    trace.write_text("at_s,query,events,bytes\n" + "".join(f"{at},words,{n},{900 * n}\n" for at, n in enumerate(rates)))
    said = "announced: [{name: sale, at: 2026-12-24T18:02:00+01:00, for: 40s, rate: 220/s}]"
    means = []
    for begins in ("2026-12-24T18:00:00+01:00", "2026-12-25T18:00:00+01:00"):
        result = simulate(
            tmp_path,
            *("--model", model, "--trace", str(trace), "--begins", begins, "--policy", "reactive"),
            *("--report", str(report)),
            config=CONFIG + f"    {said}\n",
        )
        assert result.exit_code == 0, result.output
        (query,) = json.loads(report.read_text())["reactive"]["queries"]
        means.append(query["mean_s"])
    assert means[0] < 0.7 * means[1]


@pytest.mark.parametrize(("text", "says"), [("tomorrow", "is no time"), ("2026-12-24T18:00:00", "has no time zone")])
def test_a_wrong_begin_is_refused(tmp_path: Path, text: str, says: str) -> None:
    result = simulate(tmp_path, "--for", "5s", "--begins", text)
    assert result.exit_code == 2
    assert says in result.output.replace("\n", " ")
