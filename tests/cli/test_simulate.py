"""``spillway simulate`` tries a config in virtual time."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gateway.simulate.runs.promises import BrokenPromiseError
from tests.cli.simulating import CONFIG, simulate


def measured(tmp_path: Path, *arguments: str, replay: str = "replay: {rate: 150/s}") -> dict[str, dict[str, object]]:
    report = tmp_path / "report.json"
    result = simulate(tmp_path, "--report", str(report), *arguments, replay=replay)
    assert result.exit_code == 0, result.output
    assert "private only" in result.output
    loaded: dict[str, dict[str, object]] = json.loads(report.read_text())
    return loaded


def test_a_vm_helps_and_costs(tmp_path: Path) -> None:
    outcomes = measured(tmp_path, "--for", "90s")
    alone, helped = outcomes["private only"], outcomes["as configured"]
    (before,), (after,) = alone["queries"], helped["queries"]  # type: ignore[misc]
    assert before["events"] == after["events"] == pytest.approx(90 * 150, rel=0.05)  # type: ignore[has-type]
    assert alone["usd"] == 0
    assert helped["usd"] > 0  # type: ignore[operator]
    assert after["mean_s"] < 0.6 * before["mean_s"]  # type: ignore[has-type]


def test_a_replays_profile_is_the_load_and_tells_how_long_it_lasts(tmp_path: Path) -> None:
    replay = "replay: {profile: [{for: 40s, rate: 20/s}, {for: 20s, rate: 90/s}, {for: 60s, rate: 10/s}], speed: 2}"
    all_of_it, shorter = (measured(tmp_path, *words, replay=replay)["private only"] for words in ((), ("--for", "20s")))
    (whole,), (part,) = all_of_it["queries"], shorter["queries"]  # type: ignore[misc]
    assert whole["events"] == pytest.approx(40 * 20 + 20 * 90 + 60 * 10, rel=0.1)  # type: ignore[has-type]
    assert part["events"] == pytest.approx(40 * 20, rel=0.15)  # type: ignore[has-type]


def test_without_a_cloud_all_stays_at_home_and_costs_nothing(tmp_path: Path) -> None:
    no_cloud = "gateway: {state_dir: state}\nqueries:" + CONFIG.partition("queries:")[2]
    report = tmp_path / "report.json"
    result = simulate(tmp_path, "--for", "30s", "--report", str(report), config=no_cloud)
    assert result.exit_code == 0, result.output
    outcomes = json.loads(report.read_text())
    alone, configured = outcomes["private only"], outcomes["as configured"]
    assert configured["queries"] == alone["queries"]
    assert configured["queries"][0]["events"] > 0
    assert configured["usd"] == 0


def test_a_query_that_may_not_be_split_stays_home(tmp_path: Path) -> None:
    outcomes = measured(tmp_path, "--for", "60s", "--stays-home", "words")
    assert outcomes["as configured"] == outcomes["private only"]
    unknown = simulate(tmp_path, "--stays-home", "wrods")
    assert unknown.exit_code == 2
    assert 'no query "wrods"' in unknown.output


def test_the_parts_of_a_query_with_mode_keys_move(tmp_path: Path) -> None:
    sql = "sql: SELECT id, count(*) AS events FROM events GROUP BY id"
    config = CONFIG.replace(
        "sql: SELECT id FROM events", f"{sql}\n    switching: {{mode: keys, key: id, parts: 3, share: 60%}}"
    )
    config = config.replace(
        "sink: {type: file, path: out}", "sink: {type: file, path: out}\n    output: {mode: update, key: [id]}"
    )
    report = tmp_path / "report.json"
    result = simulate(tmp_path, "--for", "90s", "--report", str(report), config=config)
    assert result.exit_code == 0, result.output
    outcomes = json.loads(report.read_text())
    (before,), (after,) = (outcomes[name]["queries"] for name in ("private only", "as configured"))
    assert before["events"] == after["events"]
    assert before["cloud_events"] == 0
    # One or two of three parts were on the VM for a part of the time.
    assert 0.1 < after["cloud_events"] / after["events"] < 0.8
    assert after["mean_s"] < before["mean_s"]


def test_a_broken_promise_is_told_as_our_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: object) -> None:
        raise BrokenPromiseError("a run is gone")

    monkeypatch.setattr("gateway.simulate.runs.world.World.run", broken)
    result = simulate(tmp_path, "--for", "1s")
    assert result.exit_code == 1
    assert "a run is gone" in result.output


def test_equal_seeds_give_equal_results(tmp_path: Path) -> None:
    first, second, other = (measured(tmp_path, "--for", "30s", "--seed", seed) for seed in ("4", "4", "5"))
    assert first == second
    assert first != other


def test_a_trace_is_played_as_it_is(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = ["at_s,query,events,bytes", *(f"{at},words,{50 if at < 20 else 2.5},1000" for at in range(40))]
    trace.write_text("\n".join(lines) + "\n")
    outcomes = measured(tmp_path, "--trace", str(trace), replay="follow: false")
    for outcome in outcomes.values():
        (query,) = outcome["queries"]  # type: ignore[misc]
        assert query["events"] == 20 * 50 + 20 * 2.5  # type: ignore[has-type]
    again = measured(tmp_path, "--trace", str(trace), "--seed", "9", replay="follow: false")
    assert again["private only"]["queries"] == outcomes["private only"]["queries"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nonsense\n", "the first line must be at_s,query,events,bytes"),
        ("at_s,query,events,bytes\n1,words,many,0\n", "line 2: at_s, events and bytes must be numbers"),
        ("at_s,query,events,bytes\n1,words,-1,0\n", "line 2: .*not negative"),
        ("at_s,query,events,bytes\n1,other,1,0\n", 'no query "other"; the queries of the config are words'),
        (None, "cannot be read"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path: Path, text: str | None, says: str) -> None:
    trace = tmp_path / "trace.csv"
    if text is not None:
        trace.write_text(text)
    result = simulate(tmp_path, "--trace", str(trace))
    assert result.exit_code == 2
    assert re.search(says, result.output.replace("\n", " "))


def test_without_a_rate_a_trace_is_asked_for(tmp_path: Path) -> None:
    result = simulate(tmp_path, replay="follow: false")
    assert result.exit_code == 2
    assert "give a trace" in result.output
    assert simulate(tmp_path, "--for", "soon").exit_code == 2


@pytest.mark.parametrize("policies", [(), ("--model", "fluid", "--policy", "home,configured")], ids=["runs", "fluid"])
def test_at_the_cap_both_ways_cost_the_same_and_one_of_them_is_in_time(
    tmp_path: Path, policies: tuple[str, ...]
) -> None:
    outcomes = {}
    for way in ("stay_home", "shed"):
        budget = f"budget: {{usd_per_day: 0.035, when_spent: {way}}}"
        report = tmp_path / "report.json"
        changed = CONFIG.replace("budget: {usd_per_day: 5}", budget)
        result = simulate(tmp_path, "--for", "3m", "--report", str(report), *policies, config=changed)
        assert result.exit_code == 0, result.output
        outcomes[way] = json.loads(report.read_text())["configured" if policies else "as configured"]
        (line,) = [line for line in result.output.splitlines() if re.match("(as )?configured", line)]
        (query,) = outcomes[way]["queries"]
        part = query["shed_events"] / (query["events"] + query["shed_events"])
        assert f" {part:.1%} " in line
    late, in_time = (outcomes[way]["queries"][0] for way in ("stay_home", "shed"))
    assert 0 < outcomes["shed"]["usd"] <= 0.035
    assert outcomes["stay_home"]["usd"] == pytest.approx(outcomes["shed"]["usd"])
    assert late["shed_events"] == 0
    assert late["mean_s"] > 5 * 2.0
    assert in_time["mean_s"] < 2.0
    # Home serves 110 of 150 a second: what is shed is what it cannot serve, and not much more.
    came = in_time["events"] + in_time["shed_events"]
    assert came == pytest.approx(late["events"], rel=0.01)
    assert 0.1 < in_time["shed_events"] / came < 0.4


@pytest.mark.parametrize(("model", "says"), [("runs", "model: runs ("), ("fluid", "model: fluid (")])
def test_the_output_says_which_model_ran(tmp_path: Path, model: str, says: str) -> None:
    result = simulate(tmp_path, "--for", "5s", "--model", model, "--policy", "home,configured")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith(says)
    assert {"home", "configured"} <= {line.split(" ")[0] for line in result.output.splitlines()}


def test_pictures_do_not_choose_the_model(tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    refused = simulate(tmp_path, "--for", "5s", "--html", str(page))
    assert refused.exit_code == 2
    assert "add --model fluid" in refused.output
    assert not page.exists()
    assert simulate(tmp_path, "--for", "5s", "--html", str(page), "--model", "fluid").exit_code == 0
    assert "Model: fluid" in page.read_text(encoding="utf-8")
