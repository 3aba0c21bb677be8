from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gateway.cli import main
from gateway.config.sites import GatewayConfig
from gateway.views.logfile import LogFollower, about, last_records
from gateway.views.logs import Seldom, begin_logging, kept_log
from tests.gateway.daemon_site import configured


def record(line: int) -> logging.LogRecord:
    return logging.LogRecord("aiokafka.client", logging.ERROR, "client.py", line, "no broker", (), None)


def test_the_same_place_speaks_once_in_a_while_and_others_are_not_held_back() -> None:
    now_s = 100.0
    seldom = Seldom(lambda: now_s)
    assert seldom.filter(record(1))
    assert not seldom.filter(record(1))
    assert seldom.filter(record(2))
    now_s += 31.0
    assert seldom.filter(record(1))


def test_handlers_of_whoever_runs_a_gateway_in_its_own_process_stay_as_they_are() -> None:
    handlers = logging.getLogger().handlers
    before = [(handler, list(handler.filters)) for handler in handlers]
    assert before, "pytest has its own"
    begin_logging()
    assert [(handler, list(handler.filters)) for handler in handlers] == before


def test_the_log_is_kept_in_files_of_a_limited_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = GatewayConfig.model_validate({"state_dir": str(tmp_path), "log": {"rotate": "10kB"}})
    root = logging.getLogger()
    # What pytest captures is sent between its processes, which half a surrogate pair would end.
    monkeypatch.setattr(root, "handlers", [])
    before = list(root.handlers)
    with kept_log(config):
        for n in range(1000):
            logging.getLogger("spillway.test").warning("query words: number %d of a thousand, \udcff", n)
        logging.getLogger("aiokafka.client").info("a library's, at a level that nobody wants")
    assert root.handlers == before
    files = sorted((tmp_path / "log").iterdir())
    assert [path.name for path in files] == ["gateway.log", *(f"gateway.log.{n}" for n in (1, 2, 3))]
    assert all(path.stat().st_size <= 10_000 for path in files)
    records = last_records(config.log_file, about("words"), 1000)
    assert 150 < len(records) < 1000
    assert records[-1].endswith("WARNING query words: number 999 of a thousand, \\udcff\n")
    numbers = [int(record.split("number ")[1].split()[0]) for record in records]
    assert numbers == list(range(1000 - len(records), 1000))


LINES = """\
2026-11-25 15:00:00,000 INFO ready
2026-11-25 15:00:01,000 ERROR query words failed
Traceback (most recent call last):
  a line of it
2026-11-25 15:00:02,000 INFO swords: {'home': 3} events
2026-11-25 15:00:03,000 INFO words: {'home': 3} events
2026-11-25 15:00:04,000 INFO words.more: nothing
"""


def test_records_about_a_query_are_those_with_its_name_and_all_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    path.write_text(LINES)
    found = last_records(path, about("words"), 10)
    assert [record.count("\n") for record in found] == [3, 1]
    assert found[0].endswith("  a line of it\n")
    assert [record[24:] for record in last_records(path, about("words"), 1)] == ["INFO words: {'home': 3} events\n"]
    assert "".join(last_records(path, about(None), 10)) == LINES
    assert [record[24:] for record in last_records(path, about("words.more"), 9)] == ["INFO words.more: nothing\n"]


def test_what_is_written_later_follows_over_a_rotation(tmp_path: Path) -> None:
    path = tmp_path / "gateway.log"
    head = "2026-11-25 15:00:00,000 INFO"
    path.write_text(f"{head} words: old\n")
    follower = LogFollower(path, about("words"))
    assert follower.next() == []
    with path.open("a") as file:
        file.write(f"{head} words: 1\n  more\n{head} other: 2\n  less\n{head} words: ha")
    assert follower.next() == [f"{head} words: 1", "  more"]
    with path.open("a") as file:
        file.write(f"lf\n{head} words: 3\n")
    path.rename(tmp_path / "gateway.log.1")
    assert follower.next() == [f"{head} words: half", f"{head} words: 3"]
    path.write_text(f"{head} words: 4\n")
    assert follower.next() == [f"{head} words: 4"]
    assert follower.next() == []
    follower.close()


def test_logs_shows_the_last_records(tmp_path: Path) -> None:
    config = configured(tmp_path)

    def logs(*words: str) -> Result:
        return CliRunner().invoke(main, ["logs", str(tmp_path / "config.yaml"), *words])

    assert (logs().exit_code, "no gateway has run with this config" in logs().output) == (1, True)
    config.gateway.log_file.parent.mkdir(parents=True)
    config.gateway.log_file.write_text(LINES)
    assert logs().output == LINES
    assert logs("words", "--last", "1").output == f"{LINES.splitlines()[5]}\n"
    assert logs("wrods").exit_code == 2
