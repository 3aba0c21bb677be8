"""The demo from Kafka to Kafka, shortened, on a real broker and real Spark: who carried the mails, and all came."""

from __future__ import annotations

import io
from contextlib import ExitStack
from pathlib import Path

import pytest
from rich.console import Console

from engines.email.generator import generate_mail
from gateway.demo.kafka.carried import CarriedRun
from gateway.demo.kafka.player import KafkaPlayer
from gateway.demo.kafka.site import KafkaSite
from gateway.demo.load import RateSegment, event_count
from gateway.demo.playing.progress import Stages
from gateway.demo.stage import Stage
from tests.connectors.kafka_broker import Broker
from tests.e2e.direct_site import JARS

BASE = list(generate_mail(300, seed=4))
# Mails are produced each 20 ms at the soonest: on any machine some results are later than this. The first mails are
# soon processed, and the gateway may only take over when Spark has told of them, at its checkpoint 10 s later.
EAGER = {"mode": "off", "start_vm_above": "20ms", "send_above": "10ms", "keep_vm_above": "5ms", "tolerance": "12s"}


class Eager(KafkaPlayer):
    """Hands over early."""

    def query(self, mode: object) -> dict[str, object]:
        return {"switching": EAGER}


def test_spark_carries_mails_and_the_gateway_takes_over(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1")
    stage = Stage(tmp_path / "stage", BASE)
    profile = [RateSegment(20.0, 200.0)]
    with ExitStack() as ends, Stages(Console(file=io.StringIO())) as stages:
        player = Eager(stage, BASE, stages, "reactive", KafkaSite(broker.brokers, JARS))
        ends.callback(player.close)
        ends.callback(stage.clear)
        run = player.play_mode("elastic", "elastic", "elastic", profile, keep_hosts=False)
    assert isinstance(run, CarriedRun)
    assert run.verdict.clean, run.verdict
    assert run.verdict.late == 0
    events = run.record.totals.events
    assert events > event_count(profile), "with those by which Spark's streams begin"
    carried = run.carried
    assert carried.spark > 0
    assert carried.gateway > 0, carried
    assert carried.spark + carried.gateway == events
    assert carried.hand_overs, "the gateway took over"
    assert all("after its event" in each.reason for each in carried.hand_overs)
    assert run.record.totals.latency_ms.mean > 0
