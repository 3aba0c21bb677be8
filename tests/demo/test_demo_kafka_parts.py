"""The demo from Kafka to Kafka: its mails, the check of its answers, its turns, and what its report says."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace
from rich.console import Console
from typer.testing import CliRunner

from engines.email.generator import generate_mail
from engines.email.oracle import MailAnswer, answer
from gateway.cli import main
from gateway.demo.kafka.answers import MailAnswers, measured
from gateway.demo.kafka.carried import CarriedRun, carried_by, rates_per_s
from gateway.demo.kafka.mails import PARTITIONS, FlatAnswer, MailRecords, event_of
from gateway.demo.kafka.run import tell_carried
from gateway.demo.kafka.site import KafkaSite
from gateway.demo.kafka.turns import HandOver, carried_by_spark, hand_overs, turns_in
from gateway.demo.load import looped_id
from gateway.demo.report import Mode, Report, RunsByMode
from gateway.demo.verify import NO_EVENT, ExpectedResults
from infra.messages import NAME_HEADERS
from tests.demo.conftest import SETTINGS

BASE = list(generate_mail(50, seed=4))
EXPECTED = ExpectedResults(BASE)
EVENTS = 120
HAND_OVER = HandOver(partitions=(0, 2), at_s=7.5, lasted_s=12.0, returned=True, reason="the newest result came late")


def right_answer(number: int) -> MailAnswer | None:
    mail = BASE[number % len(BASE)]
    return answer(replace(mail, message_id=looped_id(mail.message_id, number // len(BASE))))


def result(one: MailAnswer) -> bytes:
    return msgspec.json.encode(FlatAnswer(**{**msgspec.structs.asdict(one), "recipients": " ".join(one.recipients)}))


def headers(number: int) -> list[tuple[str, bytes]]:
    values = ("mails", str(number % PARTITIONS), str(number // PARTITIONS))
    return [(name, value.encode()) for name, value in zip(NAME_HEADERS, values, strict=True)]


def test_a_record_is_the_mail_in_columns_of_text() -> None:
    said = json.loads(MailRecords(BASE).value(57))
    mail = BASE[7]
    assert (said["message_id"], said["sender"], said["to"]) == (f"{mail.message_id}#1", mail.sender, " ".join(mail.to))
    assert datetime.fromisoformat(said["sent"]) == mail.sent
    assert all(isinstance(value, str) for value in said.values())


def test_a_result_is_right_if_its_headers_name_the_event_to_which_it_is_the_answer() -> None:
    rows = {number: one for number in range(EVENTS) if (one := right_answer(number)) is not None}
    for number, one in rows.items():
        assert event_of(result(one), headers(number), EXPECTED, EVENTS) == number
    number, one = next(iter(rows.items()))
    wrong = replace(one, words=one.words + 1)
    assert event_of(result(wrong), headers(number), EXPECTED, EVENTS) == NO_EVENT
    assert event_of(result(one), headers(number + PARTITIONS), EXPECTED, EVENTS) == NO_EVENT
    assert event_of(result(one), [], EXPECTED, EVENTS) == NO_EVENT
    assert event_of(b"{", headers(number), EXPECTED, EVENTS) == NO_EVENT


def answers(numbers: list[int], late: tuple[int, ...] = ()) -> MailAnswers:
    marks = np.array([place in late for place in range(len(numbers))], dtype=bool)
    return MailAnswers(np.array(numbers), marks, np.arange(len(numbers), dtype=float))


def test_results_are_in_order_within_each_partition_of_the_mails() -> None:
    wanted = [number for number in range(EVENTS) if right_answer(number) is not None]
    by_partition = [number for each in range(PARTITIONS) for number in wanted if number % PARTITIONS == each]
    assert answers(by_partition).verdict(EXPECTED, EVENTS).clean
    assert answers(wanted[::-1]).verdict(EXPECTED, EVENTS).order_violations > 0
    assert answers([*wanted, wanted[0]]).verdict(EXPECTED, EVENTS).duplicated == 1
    assert answers(wanted[1:]).verdict(EXPECTED, EVENTS).lost == 1
    assert answers([*wanted[1:], wanted[0]], late=(len(wanted) - 1,)).verdict(EXPECTED, EVENTS).order_violations == 0


def test_latencies_are_from_when_a_mail_was_due(runs: RunsByMode) -> None:
    record = replace(runs["elastic"].record, began_s=990.0)
    due_s = np.array([0.0, 1.0, 2.0])
    found = MailAnswers(np.array([0, 1, 3, 2]), np.zeros(4, dtype=bool), np.array([999.0, 1000.5, 1002.5, 1006.0]))
    seen = measured(record, found, due_s, 1000.0, first=1)
    assert seen.totals.events == 4
    assert seen.totals.latency_ms.mean == pytest.approx(1e3 * (0.5 + 0.5 + 5.0) / 3)
    assert [slot.at_s for slot in seen.slots[:2]] == [1.0, 2.0], "the times begin with the first mail"
    latencies = {slot.at_s: slot.all_latency_ms for slot in seen.slots if slot.all_latency_ms is not None}
    assert latencies == {1.0: pytest.approx(500.0), 3.0: pytest.approx(500.0), 6.0: pytest.approx(5000.0)}


def test_the_rate_is_that_of_the_second_half_while_results_come() -> None:
    slow, fast = np.arange(40) * 10.0, 1000.0 + np.arange(20) * 0.125
    at_s = np.concatenate([slow, fast, fast + 10.0])
    numbers = np.arange(len(at_s))
    assert MailAnswers(numbers, np.zeros(len(at_s), dtype=bool), at_s).rate_per_s() == pytest.approx(
        (8 + 8 + 4 + 8 + 8) / 5
    )
    with pytest.raises(ValueError, match="1 results are too few"):
        answers([0]).rate_per_s()


def log_of(folder: Path, *lines: tuple[float, str]) -> Path:
    path = folder / "gateway.log"
    texts = [
        json.dumps({"time": datetime.fromtimestamp(at_s, UTC).isoformat(), "message": f"query elastic: {said}"})
        for at_s, said in lines
    ]
    path.write_text("\n".join(["WARNING: of a library", *texts, '{"time": "half a li']))
    return path


def test_hand_overs_are_read_from_the_log(tmp_path: Path) -> None:
    log = log_of(
        tmp_path,
        (90.0, "Spark carries mails/0 from now on"),
        (90.0, "Spark carries mails/1, mails/5 from now on"),
        (107.5, "the gateway takes over mails/0 after 17.5 s: the newest result came 3.00 s after its event"),
        (108.0, "10 events, 3 results in the last minute"),
        (110.0, "the gateway takes over mails/1, mails/5 after 20.0 s: 50% of the events are to go to VMs"),
        (127.5, "Spark carries mails/0 from now on"),
    )
    turns = turns_in(log)
    assert carried_by_spark(turns) == {"mails/0"}
    first, second = hand_overs(turns, 100.0, 140.0)
    assert (first.partitions, first.at_s, first.lasted_s, first.returned) == ((0,), 7.5, 20.0, True)
    assert first.reason == "the newest result came 3.00 s after its event"
    assert (second.partitions, second.at_s, second.lasted_s, second.returned) == ((1, 5), 10.0, 30.0, False)
    assert len(hand_overs(turns, 108.0, 140.0)) == 1, "what was handed over before the first mail does not count"


def carried_runs(runs: RunsByMode) -> dict[Mode, CarriedRun]:
    found: dict[Mode, CarriedRun] = {}
    for mode, run in runs.items():
        totals = replace(run.record.totals, events_by_lane={"home": 900, "vm-1": 100}, direct_events=700)
        record = replace(run.record, totals=totals)
        over = () if mode == "private_only" else (HAND_OVER,)
        found[mode] = CarriedRun(record=record, verdict=run.verdict, carried=carried_by(record, over))
    return found


def test_events_are_those_of_spark_of_the_gateway_and_of_vms(runs: RunsByMode) -> None:
    one = carried_runs(runs)["elastic"].carried
    assert (one.spark, one.gateway, one.vms) == (700, 200, 100)


def test_what_spark_tells_at_once_is_spread_over_the_time_before(runs: RunsByMode) -> None:
    slots = [
        replace(slot, direct=500 if slot.at_s == 12.0 else 0, completed={"home": 30, "vm-1": 7})
        for slot in runs["elastic"].record.slots
    ]
    rates = rates_per_s(slots)
    assert rates["spark"][:14].tolist() == [0, 0, *[50] * 10, 0, 0]
    assert set(rates["gateway"].tolist()) == {30.0}
    assert set(rates["vms"].tolist()) == {7.0}


def test_the_report_tells_who_carried_the_mails(tmp_path: Path, runs: RunsByMode, report: Report) -> None:
    console = Console(width=200, record=True, quiet=False)
    with console.capture() as capture:
        assert not tell_carried(console, report, dict(carried_runs(runs)), tmp_path)
    said = {line.split("│")[1].strip(): line for line in capture.get().splitlines() if line.count("│") > 3}
    assert "700 (70%)" in said["mails carried by Spark by itself"]
    assert "12 s" in said["how long hand-overs lasted"]
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["carried"]["elastic"]["vms"] == 100
    assert written["carried"]["private_only"]["hand_overs"] == []
    assert written["config"]["mail"] == SETTINGS.mail
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Who carried the mails" in page
    assert "the newest result came late" in page


def test_sparks_connector_comes_from_a_folder_or_is_downloaded(tmp_path: Path) -> None:
    assert "spark.jars.packages" in KafkaSite("broker:9092").private["spark"]["conf"]
    assert "has no jar of Spark's Kafka connector" in KafkaSite("broker:9092", tmp_path).why_not
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.2.0.jar").touch()
    site = KafkaSite("broker:9092", tmp_path)
    assert site.why_not == ""
    assert site.private["spark"]["conf"]["spark.jars"].endswith("spark-sql-kafka-0-10_2.13-4.2.0.jar")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--kafka", "localhost:1", "--cold"], "--kafka and --cold exclude each other"),
        (["--kafka", "localhost:1", "--wan", "70ms,50mbit"], "--kafka and --wan exclude each other"),
        (["--connector", "jars"], "--connector is for --kafka only"),
        (["--kafka", "localhost:1", "--connector", "nowhere"], "has no jar of Spark's Kafka connector"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: list[str], why: str) -> None:
    said = CliRunner().invoke(main, ["demo", *options])
    assert said.exit_code == 2
    assert why in said.output
