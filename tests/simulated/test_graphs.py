"""Files of graphs: what they mean, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.config import ConfigError
from gateway.simulate.graphs.building import CannotBuildError, build
from gateway.simulate.graphs.graphpage import metric_by_time, waiting
from gateway.simulate.graphs.model import GraphsFile
from gateway.simulate.graphs.playing import GraphsOutcome, play
from gateway.simulate.graphs.reading import is_graphs, read_graphs
from tests.simulated.graph_files import EXAMPLE, SMALL, graphs, written

APART = ("consumers: {c: {instructions: 1000000}}", "consumers: {c: {instructions: 1000000, vm: b}}")
FAILS = ("tick:", "failures: [{vm: a, at: 5s, back_after: 4s}]\ntick:")


def events(outcome: GraphsOutcome) -> float:
    return outcome.consumers[0].events


def test_the_example_is_the_papers_use_case() -> None:
    outcome = play(read_graphs(EXAMPLE), seed=1)
    (end,) = outcome.consumers
    # Half a window, and half of the time in which the store writes 1,000 averages (docs/results/cepsim.md).
    assert end.latency_s == pytest.approx(7.5 + 1000 / 170.06 / 2, rel=0.01)
    assert end.throughput_per_s == pytest.approx(10_000)
    assert end.events == pytest.approx(4000)
    assert sum(part.events for part in end.by_second) == pytest.approx(end.events)
    assert sum(part.events for part in end.by_minute) == pytest.approx(end.events)
    assert [len(end.by_second), len(end.by_minute)] == [72, 2]
    (vm,) = outcome.vms
    # 10,000 * 19,000 and 9,500 * 18,000 instructions a second; and 4,000 averages are stored.
    assert vm.used == pytest.approx((361e6 * 72 + 4000 * 11.001e6) / (72 * 2500e6), rel=1e-3)
    assert (vm.billed_s, vm.usd) == (120, pytest.approx(0.1 / 30))


def test_rates_rise_burst_and_are_drawn(tmp_path: Path) -> None:
    def produced(rate: str, seed: int = 1) -> float:
        return events(play(graphs(tmp_path, ("rate: 10/s", rate)), seed))

    assert produced("rate: 10/s") == pytest.approx(200)
    assert produced("rate: 10/s, rises_over: 10s") == pytest.approx(150)
    assert produced("rate: 10/s, bursts: {every: 10s, for: 1s, times: 3}") == pytest.approx(240)
    drawn = [produced("rate: 10/s, arrivals: poisson", seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert drawn[0] == pytest.approx(200, abs=70)


def test_windows_joins_and_weights_are_those_of_the_file(tmp_path: Path) -> None:
    per_event = "windows: {w: {instructions: 1, size: 4s, advance: 2s, results_per_event: 0.5}}"
    through = (
        "edges: [{from: p, to: c, event: 1kB}]",
        f"{per_event}\n    edges: [{{from: p, to: w}}, {{from: w, to: c}}]",
    )
    # Windows close every 2 s with 40 events, the first with 20, the last at 18 s: (10 + 8 * 20) results.
    assert events(play(graphs(tmp_path, through), 1)) == pytest.approx(170)
    joined = "producers: {p: {instructions: 1000000, rate: 10/s}, r: {instructions: 1, rate: 1/s}}"
    join = "joins: {j: {instructions: 1, window: 1s, reduction: 0.1}}\n    edges: [{from: p, to: j}, {from: r, to: j}"
    two = graphs(
        tmp_path,
        ("producers: {p: {instructions: 1000000, rate: 10/s}}", joined),
        ("edges: [{from: p, to: c, event: 1kB}", f"{join}, {{from: j, to: c}}"),
    )
    # In a second 10 and 1 events come; each meets those of the second before it.
    assert play(two, 1).consumers[0].throughput_per_s == pytest.approx(11, rel=0.02)
    assert events(play(two, 1)) == pytest.approx(0.1 * 10 * 1 * 20 * 1.9, rel=0.1)
    # p has 999 of 1,000 parts of the instructions, so that c gets enough for one event a second.
    slow = graphs(tmp_path, ("p: {instructions: 1000000,", "p: {instructions: 1000000, weight: 999,"))
    assert events(play(slow, 1)) == pytest.approx(20)


def test_a_network_and_what_is_sent_to_another_data_centre_have_their_price(tmp_path: Path) -> None:
    near, far = play(graphs(tmp_path), 1), play(graphs(tmp_path, APART), 1)
    near_s, far_s = near.consumers[0].latency_s, far.consumers[0].latency_s
    assert near_s is not None
    assert far_s is not None
    assert far_s - near_s == pytest.approx(3.0, abs=0.11)
    assert near.vms[0].sent_bytes == 0
    assert far.vms[0].sent_bytes == pytest.approx(200 * 1000)
    # A minute at 6 USD an hour, and 200 kB at 1,000 USD a GB.
    assert near.vms[0].usd == pytest.approx(0.1)
    assert far.vms[0].usd == pytest.approx(0.1 + 0.2)
    assert far.vms[1].usd == 0


def test_vertices_can_be_spread(tmp_path: Path) -> None:
    file = graphs(tmp_path, ("tick:", "placement: vertices\ntick:"))
    assert dict(build(file, 1).placement) == {"q.p": "a", "q.c": "b"}
    pinned = graphs(tmp_path, ("consumers:", "vm: b\n    consumers:"))
    assert set(build(pinned, 1).placement.values()) == {"b"}


def test_a_vm_that_fails_loses_its_memory_and_what_comes_waits(tmp_path: Path) -> None:
    whole, failed = play(graphs(tmp_path), 1), play(graphs(tmp_path, FAILS), 1)
    assert events(whole) == events(failed) == pytest.approx(200)  # the producer's queue is outside
    assert (failed.vms[0].failures, failed.vms[0].up_s) == (1, pytest.approx(16))
    assert [part.events for part in failed.consumers[0].by_second][5:9] == [0, 0, 0, 0]
    window = "windows: {w: {instructions: 1, size: 10s, results_per_event: 1}}"
    through = (
        "edges: [{from: p, to: c, event: 1kB}]",
        f"{window}\n    edges: [{{from: p, to: w}}, {{from: w, to: c}}]",
    )
    outcome = play(graphs(tmp_path, through, FAILS, ("for: 20s", "for: 21s")), 1)
    lost = sum(vertex.lost_events for vertex in outcome.vertices)
    assert lost == pytest.approx(50)  # of the open window
    assert events(outcome) == pytest.approx(200 - lost)


def test_a_host_fails_with_its_vms_and_mean_times_are_kept(tmp_path: Path) -> None:
    host = graphs(tmp_path, ("tick:", "failures: [{host: o1, at: 5s, back_after: 4s}]\ntick:"))
    assert [vm.failures for vm in play(host, 1).vms] == [1, 0]
    often = graphs(
        tmp_path,
        ("tick: 100ms", "failures: [{vm: a, every: 5m, back_after: 1m}]\ntick: 10s"),
        ("for: 20s", "for: 24h"),
    )
    outcome = play(often, 1)
    # A failure every 6 minutes on average: 240 of them in a day, with a standard deviation of some 13.
    assert outcome.vms[0].failures == pytest.approx(240, abs=50)
    assert outcome.vms[0].up_s == pytest.approx(86_400 - 60 * outcome.vms[0].failures, abs=61)


def test_vms_boot_end_and_use_what_others_left(tmp_path: Path) -> None:
    changes = (
        "vms:\n  a: {datacentre: oslo, mips: 1000,",
        "vms:\n  a: {datacentre: oslo, mips: 1000, cores: 2, ends: 10s,",
    )
    later = (
        "  b: {datacentre: rome",
        "  d: {datacentre: oslo, mips: 1000, cores: 2, ordered: 10s, boot: 5s}\n  b: {datacentre: rome",
    )
    outcome = play(graphs(tmp_path, changes, later), 1)
    assert [(vm.name, vm.up_s, vm.billed_s) for vm in outcome.vms] == [("a", 10, 60), ("b", 20, 0), ("d", 5, 60)]
    with pytest.raises(CannotBuildError, match="2000 MIPS free for d"):
        build(graphs(tmp_path, changes, later, ("ordered: 10s", "ordered: 9s")), 1)
    with pytest.raises(CannotBuildError, match="cores of 2000 MIPS"):
        build(graphs(tmp_path, ("a: {datacentre: oslo, mips: 1000", "a: {datacentre: oslo, mips: 2000")), 1)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("rate: 10/s", "rate: 10"), "graph.yaml:3: graphs.q.producers.p.rate: 10 is not a rate of events"),
        (("rate: 10/s", "rat: 10/s"), 'producers.p.rat: unknown key (did you mean "rate"?)'),
        (("to: c,", "to: d,"), 'graph.yaml:5: graphs.q.edges.0.to: there is no vertex "d"'),
        (("a: {datacentre: oslo", "a: {datacentre: osl"), '(did you mean "oslo"?)'),
        (("c: {instructions: 1000000}", "c: {instructions: 1, vm: x}"), 'no VM "x"'),
        (("  rome: {hosts: {r1", "  rome: {hosts: {o1"), "oslo has a host of this name"),
        (("b: {datacentre: rome, mips: 1000", "b: {datacentre: rome, mips: 1, usd_per_hour: 1"), "add billing"),
        (("for: 20s", "for: 25h"), "graph.yaml:14: for: is longer than 24h"),
        (("tick: 100ms", "tick: 1ms\nmeasure_from: 30s"), "measure_from: nothing is measured"),
        (("tick: 100ms", "tick: 0.001ms"), "20 s are more than 10,000,000"),
        (("tick:", "failures: [{vm: a, back_after: 1s}]\ntick:"), "failures.0: give at (once), or every"),
        (("tick:", "failures: [{at: 1s, back_after: 1s}]\ntick:"), "give a vm or a host"),
        (("tick:", "scheduling: fair\ntick:"), '"fair" is not one of weighted'),
        (
            ("edges:", "windows: {w: {instructions: 1, size: 5s, advance: 2s}}\n    edges:"),
            "windows.w.advance: the size, 5 s, is not a multiple of it",
        ),
        (("edges:", "windows: {w: {instructions: 1, size: 5s}}\n    edges:"), "give results"),
        (("edges:", "operators: {c: {instructions: 1}}\n    edges:"), "operators have one of this name"),
    ],
)
def test_a_mistake_is_told_with_its_place(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        graphs(tmp_path, change)
    assert says in str(caught.value)


def test_a_graph_with_a_cycle_is_refused(tmp_path: Path) -> None:
    cycle = "operators: {f: {instructions: 1}, g: {instructions: 1}}\n    edges: [{from: f, to: g}, {from: g, to: f}, "
    with pytest.raises(CannotBuildError, match="cycle"):
        build(graphs(tmp_path, ("edges: [", cycle + "{from: p, to: f}, {from: f, to: c}, ")), 1)


def test_a_file_is_of_graphs_or_a_config_and_never_both(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert is_graphs(path)
    path.write_text("queries: {}\n")
    assert not is_graphs(path)
    for text, says in ((SMALL + "queries: {}\n", "15: queries: a file with graphs:"), ("a: 1\n", "is neither")):
        path.write_text(text)
        with pytest.raises(ConfigError, match=says):
            is_graphs(path)


def test_charts_show_seconds_and_queues(tmp_path: Path) -> None:
    outcome = play(graphs(tmp_path, ("c: {instructions: 1000000}", "c: {instructions: 200000000}")), 1)
    (end,) = outcome.consumers
    figure = metric_by_time(outcome, "latency (s)", [[part.latency_s for part in end.by_second]])
    assert list(figure.data[0].x) == list(range(1, 21))
    assert list(figure.data[0].y) == [part.latency_s for part in end.by_second]
    lines = {line.name: list(line.y) for line in waiting(outcome).data}
    # Weighted: 1,000 MIPS are enough for 4.98 events a second of 10; they wait where they came in.
    assert lines["q.p"][-1] == pytest.approx(20 * (10 - 1000 / 201), rel=0.01)


def test_the_page_shows_the_example_and_every_key() -> None:
    page = (EXAMPLE.parents[1] / "docs" / "simulating-graphs.md").read_text()
    assert EXAMPLE.read_text() in page
    keys = set(re.findall(r"`([a-z_]+)`|\b([a-z_]+):", page))
    told = {word for pair in keys for word in pair} | {
        word for path in re.findall(r"`([\w.…]+)`", page) for word in path.split(".")
    }
    sections = GraphsFile.model_json_schema()
    known = {key for node in [sections, *sections["$defs"].values()] for key in node["properties"]}
    assert len(known) > 40
    assert known - told == set()
