"""What a line of the log looks like, and that it has no secrets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from gateway.config.sites import GatewayConfig
from gateway.views.logs import acquaint, kept_log
from infra.service.logformat import HIDDEN, formatter_for, hide, know_queries, text_formatter, without_secrets
from tests.gateway.daemon_site import configured
from tests.leaks import leaks

LOG = logging.getLogger("spillway.format")


def record(message: str, *args: object, exc_info: Any = None) -> logging.LogRecord:
    return LOG.makeRecord(LOG.name, logging.WARNING, "format.py", 1, message, args, exc_info)


def raised(message: str) -> Any:
    try:
        int(message)
    except ValueError as error:
        failed = ValueError(message).with_traceback(error.__traceback__)
        return ValueError, failed, failed.__traceback__


def fields(message: str, *args: object, exc_info: Any = None) -> dict[str, str]:
    found: dict[str, str] = json.loads(formatter_for(None).format(record(message, *args, exc_info=exc_info)))
    return found


def test_a_line_names_the_query_and_the_vm_that_it_is_about() -> None:
    know_queries(["spoken", "spoken.of", "other"])
    assert list(fields("query %s moved to %s", "spoken", "vm-12")) == [
        *("time", "level", "logger", "message", "query", "vm")
    ]
    assert fields("query spoken.of: 3 events")["query"] == "spoken.of"
    assert fields("spoken: 3 events")["query"] == "spoken"
    assert fields("query spoken~2 moved from vm-1 to home")["query"] == "spoken"
    assert "query" not in fields("query spoken waits for query other")
    assert "query" not in fields("the query goes on, as it is spoken of")
    assert "vm" not in fields("from vm-1 to vm-2")
    assert fields("query unknown failed").get("query") is None


def test_a_traceback_and_what_is_no_ascii_stay_in_one_line() -> None:
    line = formatter_for(None).format(record("größer", exc_info=raised('three\nlines, "quoted"')))
    assert "\n" not in line
    assert "größer" in line
    assert json.loads(line)["exception"].endswith('ValueError: three\nlines, "quoted"')


def test_on_a_terminal_it_is_text_with_the_lines_of_the_traceback() -> None:
    text = text_formatter().format(record("query spoken failed", exc_info=raised("bad")))
    assert "query spoken failed" in text
    assert text.count("spoken") == 1
    assert text.endswith("ValueError: bad")


def test_a_secret_is_hidden_in_message_url_and_traceback() -> None:
    hide(["pass/word&1", "pass/word&1 and more", "short"])
    failed = raised("pass/word&1 is wrong")
    found = fields("http://u:%s@host says pass/word&1 and more", "pass%2Fword%261", exc_info=failed)
    assert found["message"] == f"http://u:{HIDDEN}@host says {HIDDEN}"
    assert found["exception"].endswith(f"ValueError: {HIDDEN} is wrong")
    assert without_secrets("shorter") == "shorter"


class _Login(BaseModel):
    password: SecretStr


def test_the_secrets_of_a_config_are_hidden_wherever_they_stand_in_it(tmp_path: Path) -> None:
    config = configured(tmp_path)
    inside = {"logins": [_Login(password=SecretStr("deep-in-a-list"))], "one": (SecretStr("deep-in-a-map"),)}
    acquaint(config.model_copy(update={"cloud": inside}))
    assert fields("deep-in-a-list, deep-in-a-map")["message"] == f"{HIDDEN}, {HIDDEN}"


@pytest.fixture
def secret_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[GatewayConfig]:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    config = GatewayConfig.model_validate({"state_dir": str(tmp_path / "state")})
    with kept_log(config):
        yield config


def test_the_search_of_all_logs_finds_what_a_log_must_not_have(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("sasl: {user: me, password: 'correct-horse'}\ntoken: short\n")
    (tmp_path / "api-token").write_text("battery-staple\n")
    log = tmp_path / "gateway.log.1"
    log.write_text("ready\n")
    assert leaks(tmp_path) == []
    log.write_text("ready\nas correct-horse\nas battery-staple\n-----BEGIN EC PRIVATE KEY-----\nshort\n")
    found = leaks(tmp_path)
    assert [each.split(", has")[0] for each in found] == [f"{log}, line {number}" for number in (2, 3, 4)]
    assert not [each for each in found if "horse" in each or "staple" in each]
    log.unlink()  # else the search of this test's own logs finds them, too


def test_it_finds_nothing_in_a_log_that_hides_the_secret(tmp_path: Path, secret_log: GatewayConfig) -> None:
    (tmp_path / "config.yaml").write_text("password: never-to-be-seen\n")
    hide(["never-to-be-seen"])
    LOG.warning("login with never-to-be-seen failed")
    assert HIDDEN in secret_log.log_file.read_text()
    assert leaks(tmp_path) == []
