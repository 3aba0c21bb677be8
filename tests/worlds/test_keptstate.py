"""The simulated engine of a query with state keeps Spark's rules for micro-batches and checkpoints."""

from __future__ import annotations

import random

from gateway.query.flow.run import Run
from gateway.simulate.options import Faults, Machines
from gateway.simulate.runs.agenda import Agenda, Trace
from gateway.simulate.runs.enginehosts import Reply, SimulatedEngineHost
from gateway.simulate.runs.stateful.keptstate import Checkpoint, StatefulEngine
from policies.signals import HOME


def answered(checkpoint: Checkpoint, ends: tuple[int, ...], *, commits: bool = True) -> list[tuple[int, int]]:
    """Feed an engine eight runs of ten events; return the limits of its micro-batches."""
    agenda, found = Agenda(), list[tuple[int, int]]()
    host = SimulatedEngineHost(HOME, Machines(), Faults(), agenda, Trace(agenda), random.Random(1))
    engine = StatefulEngine(host, checkpoint, ends, agenda, lambda runs: 0.1 * len(runs))

    def on_reply(reply: Reply) -> None:
        found.append((reply.first_seq, reply.last_seq))
        if commits:
            engine.committed(reply.last_seq)

    for first in range(checkpoint.resume_seq, 80, 10):
        run = Run(first, first + 9, None, 0.0, 100)
        agenda.at(0.0, lambda run=run: engine.take(run, on_reply))  # type: ignore[misc]
    while agenda.step():
        pass
    return found


def test_micro_batches_end_where_they_did_before() -> None:
    checkpoint = Checkpoint(10, 30)
    assert answered(checkpoint, (30, 60))[:2] == [(10, 29), (30, 59)]
    assert checkpoint.resume_seq == checkpoint.planned_end_seq == 80


def test_a_micro_batch_counts_once_the_sink_has_it() -> None:
    checkpoint = Checkpoint()
    assert answered(checkpoint, (), commits=False) == [(0, 9)]
    assert checkpoint == Checkpoint(0, 10)
