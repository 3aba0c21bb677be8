"""What ``spillway check`` reports about a state equals what a start does with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.views.check.checkstate import Found, look_at_state
from infra.statefiles import StateError
from tests.support.query_site import Site, at


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    site.write("in.jsonl", range(40))
    site.write("new.jsonl", range(100, 120))
    return site


def files(site: Site) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in site.folder.rglob("*") if path.is_file() and path.name != "config.yaml"}


async def checked(site: Site, **said: Any) -> Found:
    """The report of check, which must be what a start does; check changes nothing."""
    before = files(site)
    found = look_at_state(site.config(**said), "q")
    assert files(site) == before
    if found.refusal:
        with pytest.raises(StateError) as caught:
            await site.drain(**said)
        assert str(caught.value) == found.refusal
    else:
        await site.drain(**said)
    return found


async def test_without_state_there_is_nothing_to_say(site: Site) -> None:
    assert await checked(site) == Found()


async def test_state_that_goes_on_is_said_with_its_seq(site: Site) -> None:
    await site.drain()
    assert await checked(site) == Found("continues with seq 40")


async def test_a_changed_definition_is_said(site: Site) -> None:
    await site.read_only(sql="SELECT old")
    found = await checked(site, sql="SELECT new")
    assert "its definition changed" in found.text
    assert "once the old one has finished" in found.text
    assert "finished" not in (await checked(site, sql="SELECT newer")).text


async def test_state_that_would_be_lost_is_a_refusal(site: Site) -> None:
    await site.drain(sql="SELECT COUNT old")
    assert "new_epoch: true" in (await checked(site, sql="SELECT COUNT new")).refusal
    assert "with empty state" in (await checked(site, sql="SELECT COUNT new", new_epoch=True)).text


async def test_another_source_is_said_and_refused_while_events_are_outstanding(site: Site) -> None:
    await site.read_only()
    found = await checked(site, **at("new.jsonl"))
    assert "40 events that were read from" in found.refusal
    await site.drain()
    assert "is read from its start" in (await checked(site, **at("new.jsonl"))).text
    assert site.ids() == [*range(40), *range(100, 120)]


async def test_state_that_cannot_be_read_is_a_refusal(site: Site) -> None:
    await site.drain()
    (site.folder / "state/queries/q/query.json").write_text("{")
    assert "cannot be read" in (await checked(site)).refusal


UP: dict[str, Any] = {"source": {"type": "query", "name": "up"}}


def upstream(site: Site, owner: str) -> None:
    """Commit ten results of another query."""
    state, out = site.folder / "state/queries/up", site.folder / "up"
    state.mkdir(parents=True, exist_ok=True)
    (state / "query.json").write_text(json.dumps({"owner": owner, "code_hash": "", "epoch": 1}))
    out.mkdir(exist_ok=True)
    rows = "".join(json.dumps({"id": i, "text": owner}) + "\n" for i in range(10))
    (out / f"{0:010d}-{0:012d}-{9:012d}.jsonl").write_text(rows)


async def test_another_querys_results_are_known_by_their_owner(site: Site) -> None:
    for owner, said in (("one", ""), ("two", "its state is new")):
        upstream(site, owner)
        assert said in (await checked(site, **UP)).text
    assert site.ids() == [*range(10), *range(10)]


async def test_results_that_were_read_and_are_numbered_anew_are_refused(site: Site) -> None:
    upstream(site, "one")
    await site.read_only(**UP)
    upstream(site, "two")
    assert "10 events that were read from the results of query up" in (await checked(site, **UP)).refusal
    upstream(site, "one")
    await checked(site, **UP)
    assert site.ids() == list(range(10))
