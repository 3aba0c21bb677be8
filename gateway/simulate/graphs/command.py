"""``spillway simulate`` with a file of graphs: a table, JSON, and a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from gateway.config.words.units import UnitError, duration_s
from gateway.simulate.graphs.building import CannotBuildError
from gateway.simulate.graphs.model import GraphsFile
from gateway.simulate.graphs.playing import GraphsOutcome, play
from gateway.simulate.graphs.reading import read_graphs


class BadGraphsError(ValueError):
    """The file or the options cannot be simulated."""


def simulate_graphs(
    path: Path, seed: int, load_for: str | None, report: Path | None, html: Path | None, not_for_graphs: Sequence[str]
) -> None:
    """Simulate, and print what came of it.

    Args:
        path: of the file.
        seed: of arrivals and failures.
        load_for: how long, instead of the file's own ``for``.
        report: where JSON goes.
        html: where the page goes.
        not_for_graphs: options that were given, and that only a gateway's config has a use for.

    Raises:
        ConfigError: the file has mistakes.
        BadGraphsError: an option is wrong, or what the file describes cannot be.
        OSError: a report cannot be written.
    """
    if not_for_graphs:
        raise BadGraphsError(
            f"{', '.join(not_for_graphs)}: only for a gateway's config, and {path} has graphs: remove it"
        )
    try:
        if load_for is not None:
            duration_s(load_for)
        file = read_graphs(path, {} if load_for is None else {"for": load_for})
        outcome = _played(file, seed)
    except UnitError as error:
        raise BadGraphsError(f"--for: {error}") from error
    except CannotBuildError as error:
        raise BadGraphsError(f"{path}: {error}") from error
    for line in graphs_table(outcome):
        typer.echo(line)
    if report is not None:
        report.write_text(json.dumps(asdict(outcome), indent=2) + "\n", encoding="utf-8")
    if html is not None:
        from gateway.simulate.graphs.graphpage import write_graph_page

        write_graph_page(outcome, html)


def _played(file: GraphsFile, seed: int) -> GraphsOutcome:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task("graphs", total=file.for_s)
        return play(file, seed, lambda at_s: bars.update(task, completed=at_s))


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
