"""What a new config changes, by the keys that differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.reloading.changes import changes
from tests.reloading.reload_config import BASE, SQL_OF_WORDS, THIRD, config


def changed(folder: Path, *replaced: tuple[str, str], more: str = "", base: str = BASE, **said: Any) -> Any:
    text = base
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new)
    return changes(config(folder, base), config(folder, text + more), **said)


def test_comments_and_the_order_of_keys_change_nothing(tmp_path: Path) -> None:
    found = changed(tmp_path, ("provider: process\n  max_vms: 1", "# one VM\n  max_vms: 1\n  provider: process"))
    assert not found
    assert found.text() == "nothing has changed"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("qos: {latency: 2s}\n    switching", "qos: {latency: 3s}\n    switching", "qos.latency"),
        ("send_above: 1500ms", "send_above: 1s", "switching.send_above"),
        ("{send_above: 1500ms}", "{send_above: 1500ms, share: 40%}", "switching.share"),
        ("{send_above: 1500ms}", "{send_above: 1500ms, tolerance: 2s}", "switching.tolerance"),
        ("{send_above: 1500ms}", "{send_above: 1500ms, dry_run: true}", "switching.dry_run"),
        ("{send_above: 1500ms}", "{send_above: 1500ms}\n    policy: {type: static, vms: 1}", "policy"),
        (
            "{send_above: 1500ms}",
            "{send_above: 1500ms}\n    announced: [{name: a, every: '0 2 * * *', for: 1h, factor: 2}]",
            "announced",
        ),
        (
            "{send_above: 1500ms}",
            "{send_above: 1500ms}\n    on_failure: {give_up_after: 3h}",
            "on_failure.give_up_after",
        ),
    ],
)
def test_these_change_while_the_query_goes_on(tmp_path: Path, old: str, new: str, key: str) -> None:
    found = changed(tmp_path, (old, new))
    assert found.in_place == {"words": (key,)}
    assert not any((found.restart, found.added, found.removed, found.reopened, found.cloud))
    assert found.text() == f"changed in place: words ({key})"


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (SQL_OF_WORDS, SQL_OF_WORDS.replace("SELECT id", "SELECT body AS id"), "sql"),
        ("path: in.jsonl", "path: ./other.jsonl", "source.path"),
        ("{send_above: 1500ms}", "{send_above: 1500ms, mode: query}", "switching.mode"),
        ("{send_above: 1500ms}", "{send_above: 1500ms, max_pause: 3s}", "switching.max_pause"),
        ("{send_above: 1500ms}", "{send_above: 1500ms}\n    runs: {linger: 1s}", "runs.linger"),
    ],
)
def test_for_these_it_is_opened_again_and_so_is_what_reads_its_results(
    tmp_path: Path, old: str, new: str, key: str
) -> None:
    (tmp_path / "other.jsonl").touch()
    found = changed(tmp_path, (old, new))
    assert found.reopened == {"words": (key,), "again": ("the query that it reads",)}
    assert not any((found.restart, found.added, found.removed, found.in_place, found.cloud))
    assert (found.stopped, found.opened) == (("words", "again"), ("words", "again"))
    assert found.text() == f"opened again: words ({key}), again (the query that it reads)"


def test_queries_come_and_go(tmp_path: Path) -> None:
    found = changed(tmp_path, more=THIRD)
    assert (found.added, found.removed, found.opened, found.stopped) == (("third",), (), ("third",), ())
    found = changed(tmp_path, (THIRD, ""), base=BASE + THIRD)
    assert (found.added, found.removed, found.opened, found.stopped) == ((), ("third",), (), ("third",))
    assert found.text() == "removed: third"


def test_the_budget_and_the_limit_of_vms_change_at_once(tmp_path: Path) -> None:
    found = changed(tmp_path, ("usd_per_day: 5", "usd_per_day: 6, usd_per_hour: 1"), ("max_vms: 1", "max_vms: 2"))
    assert found.cloud == ("cloud.budget.usd_per_day", "cloud.budget.usd_per_hour", "cloud.max_vms")
    assert not found.restart


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("{state_dir: state}", "{state_dir: other}", "gateway.state_dir"),
        ("{state_dir: state}", "{state_dir: state, slot: 2s}", "gateway.slot"),
        ("local[1]", "local[2]", "private.spark.master"),
        ("boot: 10s", "boot: 20s", "cloud.boot"),
        ("usd_per_hour: 0.1", "usd_per_hour: 0.2", "cloud.billing.usd_per_hour"),
    ],
)
def test_anything_else_needs_a_restart(tmp_path: Path, old: str, new: str, key: str) -> None:
    assert changed(tmp_path, (old, new)).restart == (key,)


def test_queries_with_hosts_of_their_own_cannot_come_or_go(tmp_path: Path) -> None:
    own = BASE.replace("private: {", "private: {host: own, ")
    assert changed(tmp_path, base=own, more=THIRD).restart == ("queries.third",)


def test_warm_hosts_are_as_many_as_at_the_start(tmp_path: Path) -> None:
    warm = BASE.replace("boot: 10s", "boot: 10s\n  warm: true")
    assert changed(tmp_path, ("max_vms: 1", "max_vms: 2"), base=warm).restart == ("cloud.max_vms",)


def test_new_code_of_a_function_is_a_change(tmp_path: Path) -> None:
    found = changed(tmp_path, new_code=["again"])
    assert found.reopened == {"again": ()}
    assert found.text() == "opened again: again (its code)"
