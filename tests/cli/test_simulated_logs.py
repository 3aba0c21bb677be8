"""``spillway simulate --events``: configs and graphs are logged as a gateway logs, and one reader reads all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engines.simulated.metrics import GraphsSettings, Happening, MetricsEntry
from gateway.cli import main
from gateway.core.decide.scheduler import SchedulerSettings
from gateway.simulate.graphs.playing import play
from gateway.simulate.graphs.reading import read_graphs
from gateway.views.why.eventlog import LoggedEvent, SimulatedLog, all_logged, read_log
from policies.signals import SlotEnded, VmLost
from tests.cli.simulating import CONFIG, simulate
from tests.simulated.graph_files import written

APART = ("consumers: {c: {instructions: 1000000}}", "consumers: {c: {instructions: 1000000, vm: b}}")


def spillway(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def graphs_log(tmp_path: Path) -> Path:
    folder = tmp_path / "events"
    result = spillway("simulate", written(tmp_path, APART), "--events", folder)
    assert result.exit_code == 0, result.output
    (file,) = folder.iterdir()
    return file


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_the_log_of_a_simulated_config_replays_like_that_of_a_gateway(tmp_path: Path, model: str) -> None:
    folder = tmp_path / "events"
    arguments = ("--for", "60s", "--model", model, "--policy", "home,reactive,static:1", "--events", str(folder))
    result = simulate(tmp_path, *arguments)
    assert result.exit_code == 0, result.output
    assert sorted(each.name for each in folder.iterdir()) == ["home", "reactive", "static:1"]
    for name, vms in (("home", 0), ("reactive", 1), ("static:1", 1)):
        file = folder / name / "00000001.jsonl"
        settings, steps = read_log(file)
        assert isinstance(settings, SchedulerSettings)
        launches = [each for step in steps for each in step.commands if json.loads(each)["$"] == "StartVm"]
        assert (settings.max_vms, bool(launches)) == (vms, vms > 0)
        replayed = spillway("why", "--replay", file)
        assert (replayed.exit_code, "commands: the same" in replayed.output) == (0, True), replayed.output


@pytest.mark.parametrize(
    ("model", "names"), [("runs", {"private-only", "as-configured"}), ("fluid", {"home", "configured"})]
)
def test_without_policies_both_gateways_are_logged(tmp_path: Path, model: str, names: set[str]) -> None:
    folder = tmp_path / "events"
    assert simulate(tmp_path, "--for", "5s", "--model", model, "--events", str(folder)).exit_code == 0
    assert {each.name for each in folder.iterdir()} == names


@pytest.mark.parametrize("model", ["runs", "fluid"])
def test_the_log_is_of_the_first_seed_and_with_its_faults(tmp_path: Path, model: str) -> None:
    (tmp_path / "faults.yaml").write_text("faults: {reclaimed_every: 20s}")
    faults = ("--parameters", str(tmp_path / "faults.yaml"))
    logs = []
    for at, given in enumerate([(*faults, "--seeds", "2"), faults, (*faults, "--seed", "5"), ("--seed", "4")]):
        folder = tmp_path / str(at)
        arguments = ("--for", "60s", "--model", model, "--policy", "static:1", "--seed", "4", "--events", str(folder))
        result = simulate(tmp_path, *arguments, *given)
        assert result.exit_code == 0, result.output
        assert [each.relative_to(folder).as_posix() for each in folder.rglob("*.jsonl")] == ["static:1/00000001.jsonl"]
        logs.append(list(read_log(folder / "static:1" / "00000001.jsonl")[1]))
    several, first, second, calm = logs
    assert several == first != second
    assert [any(isinstance(step.event, VmLost) for step in log) for log in (first, calm)] == [True, False]
    replayed = spillway("why", "--replay", tmp_path / "1" / "static:1" / "00000001.jsonl")
    assert (replayed.exit_code, "commands: the same" in replayed.output) == (0, True), replayed.output


def test_the_log_of_graphs_has_the_entries_behind_the_report(tmp_path: Path) -> None:
    settings, steps = read_log(graphs_log(tmp_path))
    assert settings == GraphsSettings({"q.p": "a", "q.c": "b"}, tick_s=0.1, seed=1)
    logged = list(steps)
    entries = [step.event for step in logged if isinstance(step.event, MetricsEntry)]
    assert len(entries) == len(logged)
    assert {entry.happened for entry in entries} == {"processed", "sent", "received"}
    outcome = play(read_graphs(written(tmp_path, APART)), seed=1)
    for vertex in outcome.vertices:
        events = sum(e.events for e in entries if (e.vertex, e.happened) == (vertex.name, "processed"))
        assert events == pytest.approx(vertex.processed_events)
    second = [e for e in entries if e.vertex == "q.c" and e.happened == "processed" and 10 < e.at_s <= 11]
    assert sum(e.events for e in second) == pytest.approx(outcome.consumers[0].by_second[10].events)


def test_one_reader_reads_the_logs_of_both(tmp_path: Path) -> None:
    graphs_log(tmp_path)
    assert simulate(tmp_path, "--for", "5s", "--events", str(tmp_path / "of-config")).exit_code == 0
    both = [*all_logged(tmp_path / "events"), *all_logged(tmp_path / "of-config" / "as-configured")]
    begins = [each for each in both if not isinstance(each, LoggedEvent)]
    assert [type(each) for each in begins] == [GraphsSettings, SchedulerSettings]
    kinds = {type(each.event) for each in both if isinstance(each, LoggedEvent)}
    assert {MetricsEntry, SlotEnded} <= kinds
    lines = [json.loads(line) for file in tmp_path.rglob("*.jsonl") for line in file.read_text().splitlines()]
    assert {tuple(line) for line in lines} == {("format", "settings"), ("number", "event", "commands")}


def test_a_log_of_graphs_has_nothing_to_replay_or_to_pay(tmp_path: Path) -> None:
    file = graphs_log(tmp_path)
    replayed = spillway("why", "--replay", file)
    assert replayed.exit_code == 2
    assert "the event log of simulated graphs, which have no scheduler" in replayed.output
    config = tmp_path / "words.yaml"
    config.write_text(
        CONFIG.replace("REPLAY", "replay: {rate: 150/s}").replace("state_dir: state", f"state_dir: {tmp_path}")
    )
    (tmp_path / "in.jsonl").touch()
    summary = spillway("why", config, "--summary")
    assert summary.exit_code == 2
    assert "give a gateway's log" in summary.output


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    file = graphs_log(tmp_path)
    before = file.read_bytes()
    again = spillway("simulate", written(tmp_path), "--events", file.parent)
    config = simulate(tmp_path, "--for", "5s", "--events", str(file.parent))
    for result in (again, config):
        assert (result.exit_code, "is not empty: give a new folder" in result.output) == (2, True), result.output
    assert [file] == list(file.parent.iterdir())
    assert file.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, says in (("file", "Not a directory"), ("file/events", "File exists")):
        result = spillway("simulate", written(tmp_path), "--events", tmp_path / folder)
        assert (result.exit_code, says in result.output) == (1, True), result.output


def test_a_long_log_loses_its_beginning_and_says_so(tmp_path: Path) -> None:
    log = SimulatedLog(tmp_path, GraphsSettings({}, 0.1, 1), limits=(1_000, 5_000))
    for tick in range(200):
        log.note(MetricsEntry(tick, tick / 10, "q.p", Happening.PROCESSED, 1.0))
    assert not log.close()
    assert sum(each.stat().st_size for each in tmp_path.iterdir()) < 7_000
    short = SimulatedLog(tmp_path / "short", GraphsSettings({}, 0.1, 1))
    assert short.close()
