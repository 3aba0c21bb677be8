"""``spillway demo --kafka``: the e-mail benchmark from Kafka to Kafka, carried by Spark while it keeps the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, cast

import msgspec
from rich.console import Console

from engines.email.mailbox import Mail
from gateway.demo.kafka.carried import CarriedReport, CarriedRun
from gateway.demo.kafka.player import KafkaPlayer
from gateway.demo.kafka.site import KafkaSite
from gateway.demo.kafka.told import carried_sections, carried_table
from gateway.demo.load import BASE_SHARE, SPIKE_SHARE, DemoPace
from gateway.demo.playing.progress import Stages
from gateway.demo.report import Mode, Policy, Report, RunsByMode
from gateway.demo.run import perform, tell_run
from gateway.demo.stage import Stage

# After a spike there is time to catch up, to give the VM back, and for Spark to carry all of it again.
PACES: Final[Mapping[str, DemoPace]] = {
    "full": DemoPace(
        warm_up_events=100_000,
        capacity_events=160_000,
        profile=(
            (6.0, BASE_SHARE),
            (15.0, SPIKE_SHARE),
            (45.0, BASE_SHARE),
            (15.0, SPIKE_SHARE),
            (45.0, BASE_SHARE),
        ),
    ),
    "quick": DemoPace(
        warm_up_events=20_000,
        capacity_events=40_000,
        profile=((2.0, BASE_SHARE), (9.0, SPIKE_SHARE), (35.0, BASE_SHARE)),
    ),
}


def main(
    mail: Path | None, out: Path, site: KafkaSite, pace: DemoPace, runs: int = 1, policy: Policy = "reactive"
) -> int:
    """Run the demo from Kafka to Kafka; arguments and exit code are those of ``gateway.demo.run.main``.

    Args:
        mail: likewise.
        out: likewise.
        site: the broker.
        pace: likewise.
        runs: likewise.
        policy: likewise.
    """

    def player(stage: Stage, base: Sequence[Mail], stages: Stages) -> KafkaPlayer:
        return KafkaPlayer(stage, base, stages, policy, site)

    return perform(mail, out, player, pace=pace, runs=runs, policy=policy, tell=tell_carried)


def tell_carried(console: Console, report: Report, runs: RunsByMode, folder: Path) -> bool:
    """Write and show a run, and who carried its mails; return whether something was wrong."""
    by_mode = cast("dict[Mode, CarriedRun]", runs)  # a KafkaPlayer has played them
    carried = {mode: run.carried for mode, run in by_mode.items()}
    whole = CarriedReport(**msgspec.structs.asdict(report), carried=carried)
    return tell_run(console, whole, runs, folder, [carried_table(carried)], carried_sections(by_mode))
