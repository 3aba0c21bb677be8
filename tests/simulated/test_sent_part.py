"""Which part of a query's bytes crosses the WAN, as ``spillway profile`` measures it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from engines.email.queries import SCHEMA_DDL
from gateway.config.queries import QueryConfig
from gateway.simulate.parameters.sentpart import SentPart, run_events, sent_part
from infra.messages import ColumnUse, QueryPlan
from tests.simulated.mail_events import INSIDE, MAIL, mails, plan

SOME_FOLDER = str(Path(__file__).parent)
"""A source must exist; it is not read."""
READ = ("message_id", "sender", "to", "subject", "body")
PACKED = {"compress": dict.fromkeys(READ, "zstd-dict")}
"""``auto`` would also depend on how busy this machine is."""
ALL = {"trim": False, "filter": False, "compress": "none"}


def query(payload: dict[str, Any] | None = None, **more: Any) -> QueryConfig:
    said = {
        "source": {"type": "file", "path": SOME_FOLDER},
        "schema": SCHEMA_DDL + ", noise STRING",
        "sql": "SELECT body FROM events",
        "sink": {"type": "file", "path": "out"},
        "qos": {"latency": "2s"},
        "runs": {"max_events": 25},
        "payload": payload or {},
    }
    return QueryConfig.model_validate(said | more)


def measured(config: QueryConfig, known: QueryPlan, events: pa.RecordBatch) -> SentPart:
    found = sent_part("q", config, known, events)
    assert found is not None
    return found


def part(payload: dict[str, Any] | None = None, **more: Any) -> float:
    found = measured(query(payload), plan(MAIL, READ, INSIDE, **more), mails())
    return found.part


def test_mail_is_trimmed_filtered_and_compressed() -> None:
    whole = part(ALL)
    assert whole == pytest.approx(1.0, abs=0.05)
    inside = np.mean([sender.endswith("@enron.com") for sender in mails().column("sender").to_pylist()])
    assert part(ALL | {"filter": True}) == pytest.approx(inside, abs=0.1)
    trimmed = part(ALL | {"trim": True})
    assert part(PACKED) < part(PACKED | {"filter": False}) < 0.6 * trimmed < trimmed < whole
    assert 0.15 < part(PACKED) < 0.4


def test_a_query_with_state_is_sent_the_rows_that_it_does_not_need() -> None:
    assert part({"compress": "none"}, switch_class="whole") == part({"compress": "none", "filter": False})


def test_dictionaries_are_trained_by_the_first_half() -> None:
    body, runs = plan(MAIL, ("body",)), {"max_events": 2}
    trained = query({"compress": {"body": "zstd-dict"}}, runs=runs)
    cold, warm = measured(trained, body, mails().slice(0, 8)), measured(trained, body, mails())
    assert cold.how == "2 runs of 2 events, after 2 for its dictionaries"
    assert warm.how == "64 runs of 2 events, after 64 for its dictionaries"
    plain = measured(query({"compress": {"body": "zstd"}}, runs=runs), body, mails())
    assert warm.part < 0.95 * plain.part


@pytest.mark.parametrize(("events", "sent"), [(2, 0.44), (50, 0.30), (200, 0.28)])
def test_longer_runs_are_smaller_for_each_event(events: int, sent: float) -> None:
    """The figures of docs/simulation.md and decision 0161."""
    found = measured(query(PACKED, runs={"max_events": events}), plan(MAIL, READ, INSIDE), mails())
    assert found.part == pytest.approx(sent, abs=0.006)


@pytest.mark.parametrize("payload", [{}, {"compress": {"noise": "zstd-dict"}}])
def test_what_cannot_be_compressed_is_sent_as_it_is(payload: dict[str, Any]) -> None:
    noise = np.random.default_rng(3).bytes(400 * 1000)
    events = pa.record_batch({"noise": [noise[at : at + 1000] for at in range(0, len(noise), 1000)]})
    found = measured(query(payload), plan(events.schema, ("noise",)), events)
    assert found.part == pytest.approx(1.0, abs=0.02)


def test_an_event_of_several_selections_is_sent_once() -> None:
    numbers = np.random.default_rng(4).integers(0, 2**62, 2000)
    events = pa.record_batch({"at": pa.array(range(2000), pa.int64()), "number": numbers})
    known = plan(events.schema, ("at", "number"))
    selections = {"opens": {"every_events": 1}, "closes": {"events": 5}}
    alone = measured(query(ALL), known, events)
    several = measured(query(ALL, selections=selections), known, events)
    assert alone.part < several.part < 2 * alone.part


def test_protected_fields_are_sealed_or_keep_everything_at_home() -> None:
    known = plan(MAIL, READ, uses=(ColumnUse(column="body", copies=("body",)),))
    sealed = measured(query(PACKED | {"encrypt": ["body"]}), known, mails())
    clear = measured(query(PACKED), known, mails())
    assert sealed.part > 1.5 * clear.part
    assert sent_part("mail", query({"private": ["body"]}), known, mails()) is None


def test_a_run_has_what_comes_while_it_lingers() -> None:
    def at(replay: dict[str, Any] | None, runs: dict[str, Any]) -> int:
        source = {"type": "file", "path": SOME_FOLDER} | ({} if replay is None else {"replay": replay})
        return run_events(query(source=source, runs=runs), 1000.0)

    assert at({"rate": "500/s"}, {"linger": "100ms"}) == 50
    assert at({"rate": "500/s", "speed": 4}, {"linger": "100ms", "max_events": 150}) == 150
    assert at({"rate": "500/s"}, {"linger": "0s"}) == 25
    assert at({"rate": "1/s"}, {}) == 1
    assert at(None, {"max_events": 800}) == 800
    assert at(None, {"max_bytes": "100kB"}) == 100
