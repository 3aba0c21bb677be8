"""``spillway simulate`` with a file of graphs: a table, JSON, and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.config.words.units import UnitError, duration_s
from gateway.simulate.command import Asked, BadInputError
from gateway.simulate.eventlogs import EventLogs, NotEmptyError
from gateway.simulate.graphs.building import CannotBuildError
from gateway.simulate.graphs.model import GraphsFile
from gateway.simulate.graphs.playing import GraphsOutcome, play
from gateway.simulate.graphs.reading import read_graphs

_ONLY_FOR_CONFIGS = ("served", "parameters", "trace", "begins", "model", "policies", "stays_home")


def simulate_graphs(path: Path, asked: Asked) -> None:
    """Simulate, and print what came of it.

    Args:
        path: of the file.
        asked: the command's options.

    Raises:
        ConfigError: the file has mistakes.
        BadInputError: an option is wrong, or what the file describes cannot be.
        OSError: a report or a log cannot be written.
    """
    given = [_option(name) for name in _ONLY_FOR_CONFIGS if getattr(asked, name)]
    if asked.seeds > 1:
        given.append("--seeds")
    if given:
        raise BadInputError(f"{', '.join(given)}: only for a gateway's config, and {path} has graphs: remove it")
    try:
        if asked.load_for is not None:
            duration_s(asked.load_for)
        file = read_graphs(path, {} if asked.load_for is None else {"for": asked.load_for})
        outcome = _played(file, asked.seed, EventLogs(asked.events, lambda text: typer.echo(text, err=True)))
    except UnitError as error:
        raise BadInputError(f"--for: {error}") from error
    except NotEmptyError as error:
        raise BadInputError(str(error)) from error
    except CannotBuildError as error:
        raise BadInputError(f"{path}: {error}") from error
    for line in graphs_table(outcome):
        typer.echo(line)
    if asked.report is not None:
        asked.report.write_text(json.dumps(asdict(outcome), indent=2) + "\n", encoding="utf-8")
    if asked.html is not None:
        from gateway.simulate.graphs.graphpage import write_graph_page

        write_graph_page(outcome, asked.html)


def _option(name: str) -> str:
    return "--policy" if name == "policies" else f"--{name.replace('_', '-')}"


def _played(file: GraphsFile, seed: int, logs: EventLogs) -> GraphsOutcome:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("graphs", total=file.for_s)
        return play(file, seed, lambda at_s: bars.update(task, completed=at_s), logs)


def graphs_table(outcome: GraphsOutcome) -> Iterator[str]:
    """Yield the lines of the tables of consumers, vertices and VMs."""
    measured = f", measured from {outcome.measured_from_s:g} s on" if outcome.measured_from_s else ""
    yield f"model: graphs (CEPSim's), {outcome.lasted_s:g} s in ticks of {outcome.tick_s * 1000:g} ms{measured}"
    yield f"{'consumer':<28} {'events':>12} {'latency':>11} {'throughput':>14}"
    for one in outcome.consumers:
        latency = "-" if one.latency_s is None else f"{one.latency_s:,.2f} s"
        yield f"{one.name:<28} {one.events:>12,.0f} {latency:>11} {one.throughput_per_s:>12,.1f}/s"
    yield f"{'vertex':<28} {'VM':<12} {'processed':>12} {'waiting':>10} {'at most':>10} {'dropped':>10} {'lost':>8}"
    for vertex in outcome.vertices:
        yield (
            f"{vertex.name:<28} {vertex.vm:<12} {vertex.processed_events:>12,.0f} {vertex.waiting_events:>10,.0f} "
            f"{vertex.most_waiting_events:>10,.0f} {vertex.dropped_events:>10,.0f} {vertex.lost_events:>8,.0f}"
        )
    yield f"{'VM':<28} {'host':<12} {'up':>10} {'failures':>9} {'used':>7} {'billed':>10} {'sent':>10} {'USD':>9}"
    for vm in outcome.vms:
        yield (
            f"{vm.name:<28} {vm.host:<12} {vm.up_s:>8,.0f} s {vm.failures:>9} {vm.used:>7.1%} {vm.billed_s:>8,.0f} s "
            f"{vm.sent_bytes / 1e6:>7,.1f} MB {vm.usd:>9.4f}"
        )
