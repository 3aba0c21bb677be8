"""``spillway profile`` without Spark: what it reads, what it writes, and what ``spillway simulate`` says of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from engines.email.mailbox import MailReport
from engines.email.queries import SCHEMA_DDL
from engines.timing import Timed
from gateway.cli import main
from gateway.config.load import load
from gateway.demo.mailfile import chosen_mail, write_mail
from gateway.simulate.parameters import measuring
from gateway.simulate.parameters.calibration import CalibrationError, read_calibration
from gateway.simulate.parameters.measuring import first_events
from gateway.simulate.parameters.profilingruns import ProfileError
from gateway.simulate.plan import plan as plan_of
from gateway.simulate.plan import sent_text
from tests.simulated.mail_events import INSIDE, MAIL, plan

CONFIG = """\
gateway: {state_dir: state}
cloud:
  provider: process
  max_vms: 1
  boot: 5s
  billing: {period: 30s, minimum: 30s, usd_per_hour: 3.6, usd_per_gb_sent: 0}
  budget: {usd_per_day: 5}
queries:
  mail:
    source: {type: file, path: mail.jsonl, replay: {rate: 50/s}}
    schema: "SCHEMA"
    sql: SELECT body FROM events WHERE sender LIKE '%@enron.com'
    sink: {type: file, path: out}
    qos: {latency: 2s}
    payload: {compress: {body: zstd-dict}}
  other:
    source: {type: file, path: mail.jsonl, replay: {rate: 50/s}}
    schema: "SCHEMA"
    sql: SELECT body FROM events
    sink: {type: file, path: other}
    qos: {latency: 2s}
"""
MAILS = 800


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mail.yaml"
    path.write_text(CONFIG.replace("SCHEMA", SCHEMA_DDL))
    write_mail(chosen_mail(None, MAILS, 3, MailReport()), tmp_path / "mail.jsonl")
    return path


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Spark that knows the plan of the query at once, and takes 10 ms and 1 ms an event."""
    known = SimpleNamespace(plan=plan(MAIL, ("body",), INSIDE), input_schema=MAIL)
    timed = [Timed(n, 0.01 + n * 1e-3) for n in (1, 100, 4000)]
    for name, stands_in in {
        "build_session": lambda *_, **__: None,
        "stop_session": lambda _: None,
        "FeedServer": lambda: SimpleNamespace(close=lambda: None),
        "understand": lambda *_: known,
        "time_batches": lambda *_, **__: timed,
    }.items():
        monkeypatch.setattr(measuring, name, stands_in)


@pytest.mark.usefixtures("no_spark")
def test_what_crosses_the_wan_is_measured_and_simulated(config: Path, tmp_path: Path) -> None:
    out = tmp_path / "measured.yaml"
    result = CliRunner().invoke(main, ["profile", str(config), "--query", "mail", "--out", str(out)])
    assert result.exit_code == 0, result.output
    measured = read_calibration(out).queries["mail"]
    assert measured.sent_from == "64 runs of 5 events, after 64 for its dictionaries"
    assert measured.sent_part is not None
    assert 0.2 < measured.sent_part < 0.45
    said = f"mail: {measured.sent_part:.1%} of its raw bytes would cross the WAN ({measured.sent_from})"
    assert said in result.output.splitlines()

    given = ("--parameters", str(out), "--served", "100/s", "--for", "5s", "--policy", "home")
    simulated = CliRunner().invoke(main, ["simulate", str(config), *given])
    assert simulated.exit_code == 0, simulated.output
    told = f"WAN bytes, of the raw bytes: mail: {measured.sent_part:.1%} (measured by profile); other: 30.0% (assumed)"
    assert told in simulated.output.splitlines()
    alone = CliRunner().invoke(main, ["simulate", str(config), *given, "--stays-home", "other"])
    assert f"WAN bytes: {measured.sent_part:.1%} (measured by profile) of the raw bytes" in alone.output.splitlines()


def test_as_many_events_are_read_as_are_measured(config: Path, tmp_path: Path) -> None:
    query = load(config).queries["mail"]
    assert first_events("mail", query, MAIL, tmp_path, 10).num_rows == MAILS
    (tmp_path / "mail.jsonl").write_text("")
    with pytest.raises(ProfileError, match="there are no events in"):
        first_events("mail", query, MAIL, tmp_path, 10)


def test_a_part_can_be_given(config: Path, tmp_path: Path) -> None:
    path = tmp_path / "measured.yaml"
    cost = "batch_s: 0.1, event_s: 0.01, events_per_s: 100, instructions_per_event: 1"
    path.write_text(f"queries: {{mail: {{{cost}, sent_part: 0.5}}}}")
    measured = read_calibration(path)
    world = plan_of(load(config), served_per_s=100.0, for_s=1.0, seed=1, calibration=measured)
    assert [query.sent_part for query in world.queries] == [0.5, 0.3]
    assert sent_text(world, measured).endswith("mail: 50.0% (given); other: 30.0% (assumed)")
    path.write_text(f"queries: {{mail: {{{cost}, sent_part: -1}}}}")
    with pytest.raises(CalibrationError, match="sent_part"):
        read_calibration(path)
