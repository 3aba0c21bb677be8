"""A query with protected fields at home and on a VM: the results are the same, and the VM sees no clear value."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.hosts.connection import QueryRefusedError
from gateway.query.opening import AUDIT, KEY
from gateway.query.running import RunningQuery
from infra.messages import CloseQuery, ColumnUse, OpenQuery, QueryPlan
from tests.support.gateway_doubles import INPUT
from tests.support.query_site import Engine, Site
from tests.support.waiting import until

COPIES = QueryPlan(
    switch_class="stateless",
    switchable=True,
    narrow=True,
    needed_schema=INPUT.serialize().to_pybytes(),
    uses=(ColumnUse(column="id", copies=("id",)), ColumnUse(column="text", copies=("lane",))),
)
TEXTS = ["a secret of the house", "", "Grüße, streng geheim", None]
FOLDER = {"source": {"type": "file", "path": "in", "follow": True}, "runs": {"max_events": 10}}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    write(site, "a.jsonl", range(40))
    return site


def write(site: Site, name: str, ids: range) -> None:
    path = site.folder / "in" / name
    path.parent.mkdir(exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text("".join(json.dumps({"id": number, "text": TEXTS[number % 4]}) + "\n" for number in ids))
    new.replace(path)


def expected(count: int) -> list[tuple[int, str | None]]:
    return [(number, TEXTS[number % 4]) for number in range(count)]


async def send_to(query: RunningQuery, vm: Engine) -> None:
    await query.attach(vm.host.connection)
    query.set_shares({"home": 0.0, vm.host.name: 1.0})


def sent_to(vm: Engine) -> bytes:
    return b"".join(payload for _, payload in vm.host.link.sent)


def audit(site: Site) -> list[dict[str, Any]]:
    files = sorted((site.folder / "state" / "queries" / "q" / AUDIT).glob("*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


@pytest.mark.parametrize(("option", "form"), [("encrypt", "encrypted"), ("tokenize", "tokens")])
async def test_both_sites_give_the_same_results(site: Site, option: str, form: str) -> None:
    said = {**FOLDER, "payload": {option: ["text"], "compress": "none"}}
    vm = Engine("vm1", copies=COPIES)
    async with site.started(Engine(copies=COPIES), **said) as query:
        await until(lambda: len(site.rows()) == 40)
        assert query.switchable
        await send_to(query, vm)
        write(site, "b.jsonl", range(40, 120))
        await until(lambda: len(site.rows()) == 120)
        assert dict(query.tally.events_by_lane) == {"home": 40, "vm1": 80}
    await vm.close()
    assert site.rows() == expected(120)
    assert not any(text.encode() in sent_to(vm) for text in TEXTS if text)
    key = site.folder / "state" / "queries" / "q" / KEY
    assert (key.stat().st_mode & 0o777, key.stat().st_size) == (0o600, 32)
    (line,) = audit(site)
    assert (line["query"], line["vm"], line["fields"]) == ("q", "vm1", {"id": "clear", "text": form})


async def test_runs_in_progress_are_sealed_anew_after_a_restart_without_the_key(site: Site) -> None:
    said = {**FOLDER, "payload": {"encrypt": ["text"]}}
    silent = Engine("vm1", copies=COPIES, silent=True)
    async with site.started(Engine(copies=COPIES, silent=True), **said) as query:
        await send_to(query, silent)
        await query.detach("home")
        await until(lambda: bool(silent.host.runs))
    await silent.close()
    key = site.folder / "state" / "queries" / "q" / KEY
    before = key.read_bytes()
    key.unlink()
    vm = Engine("vm2", copies=COPIES)
    async with site.started(Engine(copies=COPIES, silent=True), **said) as query:
        await send_to(query, vm)
        await query.detach("home")
        await until(lambda: len(site.rows()) == 40)
    await vm.close()
    assert site.rows() == expected(40)
    assert key.read_bytes() != before
    assert [(line["vm"], line["epoch"]) for line in audit(site)] == [("vm1", 1), ("vm2", 2)]


async def test_results_that_were_never_sealed_end_the_link(site: Site) -> None:
    vm = Engine("vm1", copies=COPIES, silent=True)
    async with site.started(Engine(copies=COPIES, silent=True), **FOLDER, payload={"encrypt": ["text"]}) as query:
        await send_to(query, vm)
        await query.detach("home")
        await until(lambda: bool(vm.host.runs))
        vm.host.answer(0, 9)
        assert "was not sealed by this gateway" in await vm.host.connection.lost()
    await vm.close()


async def test_a_query_that_needs_a_private_field_is_never_opened_on_a_vm(site: Site) -> None:
    vm = Engine("vm1", copies=COPIES)
    async with site.started(Engine(copies=COPIES), **FOLDER, payload={"private": ["text"]}) as query:
        assert not query.switchable
        assert query.stays_home == "its results contain text, which is private"
        with pytest.raises(QueryRefusedError, match="q stays at home: its results contain text"):
            await query.attach(vm.host.connection)
        assert [type(message) for message, _ in vm.host.link.sent] == [OpenQuery, CloseQuery]
        assert list(query.lanes) == ["home"]
        await until(lambda: len(site.rows()) == 40)
    await vm.close()
    assert site.rows() == expected(40)
    assert audit(site) == []


async def test_without_an_audit_log_nothing_leaves(site: Site) -> None:
    vm = Engine("vm1", copies=COPIES)
    async with site.started(Engine(copies=COPIES), **FOLDER) as query:
        (site.folder / "state" / "queries" / "q" / AUDIT).write_text("no folder")
        with pytest.raises(QueryRefusedError, match=f"q stays at home: .*{AUDIT}"):
            await query.attach(vm.host.connection)
        assert list(query.lanes) == ["home"]
    await vm.close()
