"""Other promises of a running gateway: dead letters, bounded memory, the other modes, refusals."""

from __future__ import annotations

import json
import re
import signal
import socket
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from engines.email.mailbox import Mail
from engines.email.oracle import answer
from gateway.query.identity import read_identity
from tests.e2e.harness import EAGER, MEMORY_MAX_BYTES, Gateway, email_query, expected_rows, until, write_mail
from tests.support.derby import Derby
from tests.support.otlp_receiver import OtlpReceiver, receiving


def test_lines_that_are_no_events_become_dead_letters(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    lines = msgspec.json.Encoder().encode_lines(mails[:1000]).splitlines(keepends=True)
    bad = {100: b"not json\n", 500: b'{"message_id": 5}\n', 900: b'{"sender": "\xff\xfe"}\n'}
    for place, line in bad.items():
        lines.insert(place, line)
    (tmp_path / "mail.jsonl").write_bytes(b"".join(lines))
    gateway = Gateway(tmp_path, state_dir, {"dead": email_query(tmp_path, tmp_path / "mail.jsonl", "dead")})
    gateway.run_until_drained()
    assert gateway.rows("dead") == expected_rows(mails[:1000])
    letters = [json.loads(line) for line in (state_dir / "queries/dead/dead-letters.jsonl").read_text().splitlines()]
    assert [letter["record"] for letter in letters] == list(bad)
    assert [letter["offset"] for letter in letters] == [sum(map(len, lines[:place])) for place in bad]
    assert letters[0]["raw"] == "not json"
    assert all(letter["reason"] for letter in letters)
    assert "already delivered" not in gateway.log.read_text()
    gateway.run_until_drained()
    assert "dead: already delivered: its source has nothing after the first 1000 events" in gateway.log.read_text()
    assert gateway.rows("dead") == expected_rows(mails[:1000])
    assert len((state_dir / "queries/dead/dead-letters.jsonl").read_text().splitlines()) == len(bad)


def test_memory_is_bounded_when_the_source_is_much_faster_than_the_engines(
    tmp_path: Path, state_dir: Path, mails: list[Mail]
) -> None:
    write_mail(tmp_path / "mail.jsonl", mails)
    replay = {"loops": 10, "id": "message_id"}
    query = email_query(tmp_path, tmp_path / "mail.jsonl", "fast", replay=replay, switching={"mode": "off"})
    gateway = Gateway(tmp_path, state_dir, {"fast": query})
    gateway.start("--until-drained")
    assert gateway.process is not None
    peak_bytes = 0
    while gateway.process.poll() is None:
        peak_bytes = max(peak_bytes, gateway.peak_bytes())
        time.sleep(0.05)
    assert gateway.wait() == 0, gateway.tail()
    assert gateway.totals()["events"] == 10 * len(mails)
    assert len(gateway.rows("fast")) == 10 * len(expected_rows(mails))
    assert peak_bytes < MEMORY_MAX_BYTES


def write_teams(path: Path, mails: list[Mail], suffix: str) -> dict[str, str]:
    """Write the teams of every other sender as a table, and return them."""
    teams = {sender: f"team {len(sender)}{suffix}" for sender in sorted({mail.sender for mail in mails})[::2]}
    path.write_text("".join(json.dumps({"sender": sender, "team": team}) + "\n" for sender, team in teams.items()))
    return teams


def test_a_whole_query_moves_with_the_version_of_its_table_and_parquet_holds_its_rows(
    tmp_path: Path, state_dir: Path, mails: list[Mail]
) -> None:
    write_mail(tmp_path / "mail.jsonl", mails)
    table = tmp_path / "teams.jsonl"
    teams = write_teams(table, mails, "")
    query = email_query(
        tmp_path, tmp_path / "mail.jsonl", "moved", replay={"rate": "200/s"}, switching={**EAGER, "mode": "query"}
    )
    query["sink"]["format"] = "parquet"
    query["sql"] = (
        "SELECT message_id, team, floor FROM events LEFT JOIN teams USING (sender) LEFT JOIN floors USING (sender)"
    )
    floors = {sender: len(sender) for sender in sorted({mail.sender for mail in mails})[:100]}
    derby = Derby(tmp_path / "house")
    values = ", ".join(f"('{sender}', {floor})" for sender, floor in floors.items())
    derby.run(("CREATE TABLE floors (sender VARCHAR(200), floor INT)", f"INSERT INTO floors VALUES {values}"))
    query["tables"] = {
        "teams": {"path": str(table), "format": "json", "schema": "sender STRING, team STRING"},
        "floors": {"format": "jdbc", "url": derby.url, "table": "floors"},
    }
    gateway = Gateway(tmp_path, state_dir, {"moved": query})
    gateway.start("--until-drained")
    until(lambda: bool(gateway.parts("moved")), "the first results")
    # Home has read the table. The VM must get the same version, although the file is another one now.
    write_teams(table, mails, ", changed")
    assert gateway.wait() == 0, gateway.tail()
    folder = tmp_path / "out" / "moved"
    rows = [row for part in gateway.parts("moved") for row in pq.read_table(folder / str(part)).to_pylist()]
    assert rows == [
        {"message_id": mail.message_id, "team": teams.get(mail.sender), "floor": floors.get(mail.sender)}
        for mail in mails
    ]
    assert max(slot["share"] for slot in json.loads(gateway.report.read_text())["slots"]) == 1.0


def test_without_order_every_row_is_there_once(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    write_mail(tmp_path / "mail.jsonl", mails)
    query = email_query(
        tmp_path, tmp_path / "mail.jsonl", "unordered", replay={"rate": "700/s"}, switching=EAGER, order="off"
    )
    gateway = Gateway(tmp_path, state_dir, {"unordered": query})
    gateway.run_until_drained()
    assert sorted(gateway.rows("unordered"), key=repr) == sorted(expected_rows(mails), key=repr)


def test_events_out_of_order_stay_home_and_the_answers_hold(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    in_time = sorted(mails[:2000], key=lambda mail: mail.sent)
    shuffled = [*in_time[1000:], *in_time[:1000]]
    write_mail(tmp_path / "mail.jsonl", shuffled)
    query = email_query(
        tmp_path,
        tmp_path / "mail.jsonl",
        "disordered",
        replay={"rate": "300/s"},
        switching={**EAGER, "mode": "query"},
        order={"by": "sent"},
    )
    gateway = Gateway(tmp_path, state_dir, {"disordered": query})
    gateway.run_until_drained()
    assert gateway.rows("disordered") == expected_rows(shuffled)


def test_two_queries_share_one_vm_one_of_them_with_protected_fields(
    tmp_path: Path, state_dir: Path, mails: list[Mail]
) -> None:
    write_mail(tmp_path / "mail.jsonl", mails)
    queries: dict[str, Any] = {
        name: email_query(tmp_path, tmp_path / "mail.jsonl", name, replay={"rate": "200/s"}, switching=EAGER)
        for name in ("first", "second")
    }
    queries["second"]["payload"] = {"encrypt": ["sender"], "tokenize": ["message_id"], "private": ["sent", "cc"]}
    with receiving() as collector:
        traces = {"endpoint": collector.endpoint, "sample": "100%"}
        quota = {"name": "town", "max_vms": 1, "usd_per_day": 100}
        more = {"traces": traces, "quota": quota, "object_store": {"folder": str(tmp_path / "store")}}
        gateway = Gateway(tmp_path, state_dir, queries, more=more)
        gateway.run_until_drained()
    assert gateway.rows("first") == gateway.rows("second") == expected_rows(mails)
    check_traces(collector, len(mails))
    totals = gateway.totals()
    assert totals["vms"]["started"] == totals["vms"]["stopped"] == 1
    # Its permit of the quota was taken and renewed while it lived, and is free again.
    assert max(int(path.name) for path in (tmp_path / "store/quotas/town/vms/0000").iterdir()) % 2 == 0
    assert re.search(r"query second: .*% to vm-", gateway.log.read_text())
    assert re.search(r"query second: [\d,]+ events \([^)]*vm-", gateway.log.read_text())
    ((line, *_),) = [path.read_text().splitlines() for path in (state_dir / "queries/second/audit").iterdir()]
    sealed = {"message_id": "tokens", "sender": "encrypted"}
    assert json.loads(line)["fields"] == {**sealed, "to": "clear", "subject": "clear", "body": "clear"}


def check_traces(collector: OtlpReceiver, events: int) -> None:
    """The collector has a trace of each run, those at home and those on the VM, and its times can be."""
    for query in ("first", "second"):
        roots = [root for root in collector.roots if root.attributes["spillway.query"] == query]
        assert sum(root.attributes["spillway.run.events"] for root in roots) == events
        seqs = sorted(
            (root.attributes["spillway.run.first_seq"], root.attributes["spillway.run.last_seq"]) for root in roots
        )
        assert [first for first, _ in seqs] == [0, *(last + 1 for _, last in seqs[:-1])]
        places = {name for root in roots for name in (span.name for span in collector.below(root)) if "lane " in name}
        assert {"lane home", "lane vm"} <= places
    batches = [span for span in collector.spans if span.name == "micro-batch"]
    assert len(batches) > 20
    # Spark did something in each of them, which a slow round trip may leave hardly any time for.
    assert min(span.took_s for span in batches) > 0
    assert median(span.took_s for span in batches) > 0.001
    assert max(span.took_s for span in collector.roots) < 600


def test_a_second_gateway_on_the_same_state_is_refused(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    write_mail(tmp_path / "mail.jsonl", [mail for mail in mails if answer(mail)][:50])
    query = email_query(tmp_path, tmp_path / "mail.jsonl", "owner", replay={"rate": "1/s"})
    first = Gateway(tmp_path, state_dir, {"owner": query})
    first.start()
    second = Gateway(tmp_path, state_dir, {"owner": query})
    second.log = tmp_path / "second.log"
    until(lambda: "ready" in first.log.read_text(), "the first gateway is ready")
    second.start()
    assert second.wait() == 2
    assert "in use by another gateway" in second.tail()
    first.kill(15)
    assert first.wait() == 0, first.tail()


class TellsTo(threading.Thread):
    """The socket of a service manager, which is read at once: only a few messages fit into it."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._lines: list[str] = []
        self.start()

    def run(self) -> None:
        while (said := self._socket.recv(4096)) != b"end":
            self._lines += said.decode().split("\n")

    def lines(self) -> list[str]:
        """Return all lines that came."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as last:
            last.sendto(b"end", str(self.path))
        self.join(60)
        self._socket.close()
        return self._lines


def test_a_running_gateway_takes_in_a_changed_file_and_the_other_query_goes_on(
    tmp_path: Path, state_dir: Path, mails: list[Mail], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = TellsTo(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(told.path))
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    folder = tmp_path / "in"
    folder.mkdir()
    write_mail(folder / "1.jsonl", mails[:200])

    def query(name: str, **more: Any) -> dict[str, Any]:
        found = email_query(tmp_path, folder, name, **more)
        return {**found, "source": {**found["source"], "follow": True}}

    def reload(said: str, **queries: dict[str, Any]) -> None:
        Gateway(tmp_path, state_dir, queries)  # writes the file
        gateway.kill(signal.SIGHUP)
        until(lambda: said in gateway.log.read_text(), said)

    gateway = Gateway(tmp_path, state_dir, {"staying": query("staying"), "changing": query("changing")})
    gateway.start()
    first, ids = expected_rows(mails[:200]), [{"message_id": mail.message_id} for mail in mails]
    for name in ("staying", "changing"):
        until(lambda name=name: gateway.rows(name) == first, f"{name} has the first mails")  # type: ignore[misc]
    opened = read_identity(state_dir / "queries" / "staying")
    staying = query("staying", qos={"latency": "3s"})
    changing, added = query("changing", sql="SELECT message_id FROM events"), query("coming")
    said = "added: coming; opened again: changing (sql); changed in place: staying (qos.latency)"
    reload(f"the config was reloaded: {said}", staying=staying, changing=changing, coming=added)
    until(lambda: gateway.rows("coming") == first, "the new query has the first mails")
    wrong = {"staying": staying, "changing": {**changing, "sql": "SELECT nothing FROM events"}, "coming": added}
    reload("the old one goes on: home refuses changing: query changing: there is no column", **wrong)
    write_mail(folder / "2.jsonl", mails[200:250])
    until(lambda: gateway.rows("changing") == first + ids[200:250], "the new definition has the next mails")
    until(lambda: gateway.rows("coming") == expected_rows(mails[:250]), "the new query has the next mails")
    reload("the config was reloaded: removed: coming", staying=staying, changing=changing)
    write_mail(folder / "3.jsonl", mails[250:300])
    until(lambda: gateway.rows("staying") == expected_rows(mails[:300]), "the last mails")
    until(lambda: gateway.rows("changing") == first + ids[200:300], "the last mails")
    assert gateway.rows("coming") == expected_rows(mails[:250])
    assert read_identity(state_dir / "queries" / "staying") == opened, "it was never opened again"
    gateway.kill(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.tail()
    words = told.lines()
    assert words.count("RELOADING=1") == 3
    assert words.count("WATCHDOG=1") >= 2
    assert [each for each in words if each.partition("=")[0] in ("READY", "RELOADING", "STOPPING")] == [
        "READY=1",
        *["RELOADING=1", "READY=1"] * 3,
        "STOPPING=1",
    ]
