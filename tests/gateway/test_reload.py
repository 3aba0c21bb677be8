"""A running daemon takes in its changed file: doubles of queries and hosts, the real everything else."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from gateway.hosts.connection import QueryRefusedError
from gateway.query.supervision import making as making_module
from tests.gateway.daemon_site import Query, no_texts
from tests.gateway.operator_site import Operator, operator
from tests.support.waiting import until

__all__ = ["no_texts", "operator"]

MORE = """\
  verbs:
    source: {type: file, path: in.jsonl}
    schema: id STRING
    sql: SELECT id FROM events
    sink: {type: file, path: verbs}
    qos: {latency: 2s}
"""


class NewQuery(Query):
    """A query that the daemon makes when it takes in a config; its deeds are noted with its name."""

    refusal: Exception | None = None

    def __init__(self, name: str, config: Any, **_: Any) -> None:
        super().__init__([])
        self.name, self.config = name, config
        self._idle = True

    async def check(self, _: Any) -> None:
        if NewQuery.refusal is not None:
            raise NewQuery.refusal


@pytest.fixture(autouse=True)
def new_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(making_module, "RunningQuery", NewQuery)
    monkeypatch.setattr(NewQuery, "refusal", None)


def rewrite(operator: Operator, *replaced: tuple[str, str], more: str = "") -> None:
    path = operator.folder / "config.yaml"
    text = path.read_text()
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    path.write_text(text + more)


async def states(operator: Operator) -> dict[str, str]:
    return dict((await operator.get("/api/v1/status"))[1]["queries"])


async def test_a_query_comes_and_goes_and_the_other_is_left_alone(operator: Operator) -> None:
    rewrite(operator, more=MORE)
    assert await operator.post("/api/v1/reload") == (200, {"done": "added: verbs"})
    await until(lambda: operator.site.daemon.parts.open["verbs"].state == "running")
    assert await states(operator) == {"words": "running", "verbs": "running"}
    assert operator.site.daemon.parts.scheduler.queries.keys() == {"words", "verbs"}
    added = operator.site.daemon.parts.queries["verbs"]
    rewrite(operator, (MORE, ""))
    assert await operator.post("/api/v1/reload") == (200, {"done": "removed: verbs"})
    assert await states(operator) == {"words": "running"}
    assert operator.site.daemon.parts.scheduler.queries.keys() == {"words"}
    assert isinstance(added, NewQuery)
    assert added.said == ["start", "stop reading", "stop"]
    assert operator.site.said.count("start") == 1
    assert "stop" not in operator.site.said
    await until(lambda: len(operator.audit()) == 2)  # the lines are written in the background


async def test_thresholds_and_budget_change_in_place(operator: Operator) -> None:
    rewrite(
        operator, ("latency: 2s", "latency: 4s"), ("usd_per_day: 5", "usd_per_day: 7"), ("max_vms: 1", "max_vms: 2")
    )
    status, said = await operator.post("/api/v1/reload")
    assert status == 200
    assert said["done"] == "changed in place: words (qos.latency), cloud.budget.usd_per_day, cloud.max_vms"
    _, shown = await operator.get("/api/v1/queries/words")
    assert shown["thresholds"]["qos_latency_s"] == 4.0
    assert shown["thresholds"]["start_vm_above_s"] == pytest.approx(4.8)
    assert (await operator.get("/api/v1/costs"))[1]["usd_per_day"] == 7.0
    assert (await operator.get("/api/v1/status"))[1]["max_vms"] == 2
    scheduler = operator.site.daemon.parts.scheduler
    assert scheduler.queries["words"].settings.switching.start_vm_above_s == pytest.approx(4.8)
    assert operator.site.said.count("start") == 1
    assert "stop" not in operator.site.said


async def test_a_changed_query_is_opened_again_and_a_drained_gateway_does_not_end_meanwhile(operator: Operator) -> None:
    before = operator.site.query.tally
    rewrite(operator, ("SELECT id FROM events", "SELECT body AS id FROM events"))
    assert await operator.post("/api/v1/reload") == (200, {"done": "opened again: words (sql)"})
    await until(lambda: operator.site.daemon.parts.open["words"].state == "running")
    now = operator.site.daemon.parts.queries["words"]
    assert isinstance(now, NewQuery)
    assert now.config.sql == "SELECT body AS id FROM events"
    assert now is operator.site.daemon.parts.open["words"].query
    assert operator.site.said[-1] == "stop"
    assert before is operator.site.query.tally


async def test_what_is_refused_is_shown_and_changes_nothing(operator: Operator) -> None:
    rewrite(operator, ("latency: 2s", "latency: 2"))
    status, said = await operator.post("/api/v1/reload")
    assert status == 409
    assert "config.yaml:18: queries.words.qos.latency: 2 is not a duration" in said["error"]
    assert (await operator.get("/api/v1/status"))[1]["config_refused"] == said["error"]
    NewQuery.refusal = QueryRefusedError("verbs: there is no column idd")
    rewrite(operator, ("{latency: 2}", "{latency: 2s}"), more=MORE)
    assert await operator.post("/api/v1/reload") == (409, {"error": "verbs: there is no column idd"})
    assert await states(operator) == {"words": "running"}
    rewrite(operator, (MORE, ""), ("boot: 10s", "boot: 11s"))
    status, said = await operator.post("/api/v1/reload")
    assert "cloud.boot cannot change while the gateway runs" in said["error"]
    rewrite(operator, ("boot: 11s", "boot: 10s"))
    assert await operator.post("/api/v1/reload") == (200, {"done": "nothing has changed"})
    assert (await operator.get("/api/v1/status"))[1]["config_refused"] == ""


async def test_sighup_reloads(operator: Operator) -> None:
    rewrite(operator, more=MORE)
    os.kill(os.getpid(), signal.SIGHUP)
    await until(lambda: "verbs" in operator.site.daemon.parts.queries)
    assert operator.site.daemon.phase == "running"
