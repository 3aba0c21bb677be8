"""Traces of the runs of a pipeline, as a real collector gets them, and what happens when it does not answer."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from gateway.config.sites import TracesConfig
from gateway.query.flow.dispatcher import Loss
from gateway.query.flow.keyed.together import Division
from gateway.views.traces.tracing import Tracing
from infra.messages import HEARTBEAT
from policies.signals import HOME
from tests.query.pipeline_site import Query, serving
from tests.support.gateway_doubles import INPUT, ManualClock
from tests.support.otlp_receiver import OtlpReceiver, Received, receiving
from tests.support.waiting import until

BEGIN_S = ManualClock().wall()
ON_THE_WAY = ["read from the source", "write to the run log", "wait for a lane", "lane", "hold for earlier runs"]


@pytest.fixture
def receiver() -> Iterator[OtlpReceiver]:
    with receiving() as receiver:
        yield receiver


@asynccontextmanager
async def traced(
    folder: Path, receiver: OtlpReceiver, *, share: str = "100%", queue_most: int = 64, division: Division | None = None
) -> AsyncIterator[tuple[Query, Tracing]]:
    """A running pipeline, and the gateway's traces of it."""
    config = TracesConfig.model_validate({"endpoint": receiver.endpoint, "sample": share})
    tracing = Tracing(config, ManualClock(), seed=b"seed", queue_most=queue_most)
    async with tracing.sending():
        watching = partial(tracing.watch, "q")
        query = Query(folder, stateful=division is not None, division=division, watching=watching)
        async with query.running():
            yield query, tracing


def in_time(receiver: OtlpReceiver, root: Received) -> list[Received]:
    """The spans below a run's, which have to follow each other without a gap."""
    spans = receiver.below(root)
    assert (spans[0].begin_s, spans[-1].end_s) == (root.begin_s, root.end_s)
    assert [span.begin_s for span in spans[1:]] == [span.end_s for span in spans[:-1]]
    return spans


async def test_a_run_on_a_vm_and_one_at_home(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with traced(tmp_path, receiver) as (query, tracing):
        home, vm = query.add_host(HOME), query.add_host("vm-1")
        vm.link.stats.rtt_s = 0.2
        query.pipeline.set_shares({HOME: 0.0, "vm-1": 1.0})
        query.offer(0, 9)
        await until(lambda: len(vm.runs) == 1)
        query.clock.advance(1.5)
        vm.answer(0, 9)  # its micro-batch took 0.1 s
        await vm.all_heard()
        await query.all_committed()
        query.pipeline.set_shares({HOME: 1.0})
        query.offer(10, 19)
        await until(lambda: len(home.runs) == 1)
        query.clock.advance(0.5)
        home.answer(10, 19)
        await home.all_heard()
        await query.all_committed()
    assert tracing.counts == {"exported": 2, "dropped": 0}
    assert receiver.resources[0]["service.name"] == "spillway"
    away, here = sorted(receiver.roots, key=lambda root: root.begin_s)
    assert away.begin_s == pytest.approx(BEGIN_S, abs=1e-6)
    assert {name: away.attributes[f"spillway.{name}"] for name in ("query", "run.first_seq", "run.events")} == {
        "query": "q", "run.first_seq": 0, "run.events": 10,
    }  # fmt: skip
    for root, place, took_s in ((away, "vm", 1.5), (here, "home", 0.5)):
        spans = in_time(receiver, root)
        assert [span.name.removesuffix(f" {place}") for span in spans] == [*ON_THE_WAY, "commit to the sink"]
        lane = next(span for span in spans if span.name == f"lane {place}")
        assert (lane.took_s, lane.failed) == (pytest.approx(took_s, abs=1e-6), "")
        assert spans[-1].took_s > 0, "the sink is written each second"
    assert receiver.named(away, "lane vm").attributes["spillway.lane"] == "vm-1"
    on_vm = {span.name: span.took_s for span in receiver.below(receiver.named(away, "lane vm"))}
    assert on_vm == {
        "pack": pytest.approx(0, abs=1e-6),
        "send": pytest.approx(0, abs=1e-6),
        "wait on the host": pytest.approx(1.3, abs=1e-6),
        "micro-batch": pytest.approx(0.1, abs=1e-6),
        "results back": pytest.approx(0.1, abs=1e-6),
    }
    at_home = {span.name: span.took_s for span in receiver.below(receiver.named(here, "lane home"))}
    assert at_home["wait on the host"] == pytest.approx(0.4, abs=1e-6)
    assert at_home["results back"] == pytest.approx(0, abs=1e-6), "nobody has measured that link yet"


async def test_results_that_are_held_and_a_lane_that_is_lost(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with traced(tmp_path, receiver) as (query, _):
        vm = query.add_host("vm-1")
        query.pipeline.set_shares({"vm-1": 1.0})
        query.offer(0, 9)
        query.offer(10, 19)
        await until(lambda: len(vm.runs) == 2)
        query.clock.advance(2.0)
        vm.answer(10, 19)
        await vm.all_heard()
        query.clock.advance(3.0)
        await query.pipeline.remove_lane("vm-1", Loss("its machine is gone", query.clock.now()))
        query.clock.advance(1.0)
        async with serving(query.add_host(HOME)):
            query.pipeline.set_shares({HOME: 1.0})
            await query.all_committed()
    first, held = sorted(receiver.roots, key=lambda root: int(root.attributes["spillway.run.first_seq"]))
    lost, again = receiver.named(first, "lane vm"), receiver.named(first, "lane home")
    assert (lost.failed, lost.took_s) == ("its machine is gone", pytest.approx(5.0, abs=1e-6))
    assert (again.failed, again.attributes["spillway.attempt"]) == ("", 2)
    waits = [span.took_s for span in in_time(receiver, first) if span.name == "wait for a lane"]
    assert waits == [pytest.approx(0, abs=1e-6), pytest.approx(1.0, abs=1e-6)]
    assert "micro-batch" not in [span.name for span in receiver.below(lost)]
    assert receiver.named(held, "hold for earlier runs").took_s > 3.9


async def test_the_parts_of_a_divided_query_are_in_one_trace(tmp_path: Path, receiver: OtlpReceiver) -> None:
    division = Division("id", {}, (), (HOME, "vm-1"), (0, 0), (0,), lambda _: None)
    async with traced(tmp_path, receiver, division=division) as (query, _):
        schema = INPUT.append(_heartbeat())
        hosts = [query.add_host(place, part, schema=schema) for part, place in enumerate((HOME, "vm-1"))]
        query.offer(0, 39)
        for host in hosts:
            await until(lambda host=host: len(host.runs) == 1)  # type: ignore[misc]
            ids = [row["id"] for row in host.rows_of(host.runs[0]) if not row[HEARTBEAT]]
            host.answer(0, 39, ids)
        await query.all_committed()
    assert {root.trace_id for root in receiver.roots} == {receiver.roots[0].trace_id}
    assert sorted(root.attributes["spillway.part"] for root in receiver.roots) == [0, 1]
    assert sum(root.attributes["spillway.run.events"] for root in receiver.roots) == 40
    names = [[span.name for span in receiver.below(root) if span.name.startswith("lane")] for root in receiver.roots]
    assert sorted(names) == [["lane home"], ["lane vm"]]


def _heartbeat() -> pa.Field:
    return pa.field(HEARTBEAT, pa.bool_())


async def test_about_the_wanted_share_of_the_runs_is_traced(tmp_path: Path, receiver: OtlpReceiver) -> None:
    async with traced(tmp_path, receiver, share="20%") as (query, tracing), serving(query.add_host(HOME)):
        for seq in range(200):
            query.offer(seq, seq)
        await query.all_committed()
    assert 20 <= tracing.counts["exported"] == len(receiver.roots) <= 60
    assert len({span.span_id for span in receiver.spans}) == len(receiver.spans)


async def test_a_collector_that_refuses_costs_traces_only(
    tmp_path: Path, receiver: OtlpReceiver, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    receiver.status = 400
    async with traced(tmp_path, receiver) as (query, tracing), serving(query.add_host(HOME)):
        for dropped in (1, 2):
            query.offer(10 * dropped - 10, 10 * dropped - 1)
            await query.all_committed()
            await until(lambda dropped=dropped: tracing.counts["dropped"] == dropped)  # type: ignore[misc]
        receiver.status = 200
        query.offer(20, 29)
        await query.all_committed()
        await until(lambda: tracing.counts["exported"] == 1)
    assert query.ids() == [*range(30)]
    assert caplog.text.count("traces are dropped: the collector does not take them") == 1
    assert caplog.text.count("traces are sent again") == 1
    assert [root.attributes["spillway.run.first_seq"] for root in receiver.roots] == [20]


async def test_a_collector_that_does_not_answer_holds_nothing_up(tmp_path: Path, receiver: OtlpReceiver) -> None:
    receiver.answers.clear()
    async with traced(tmp_path, receiver, queue_most=2) as (query, tracing), serving(query.add_host(HOME)):
        query.offer(0, 9)
        await query.all_committed()
        await until(lambda: receiver.requests == 1)
        for first in range(10, 60, 10):
            query.offer(first, first + 9)
        await query.all_committed()
        assert tracing.counts == {"exported": 0, "dropped": 3}, "two wait, and the newest are kept"
        receiver.answers.set()
        await until(lambda: tracing.counts == {"exported": 3, "dropped": 3})
    assert [root.attributes["spillway.run.first_seq"] for root in receiver.roots] == [0, 40, 50]
