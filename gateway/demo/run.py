"""``spillway demo``: measures home's capacity, then plays mail with two spikes three times, on real gateways."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from engines.email.generator import generate_mail
from engines.email.mailbox import Mail, read_mail
from gateway.demo.behind import Behind
from gateway.demo.load import FULL, DemoPace, RateSegment, distinct_mails
from gateway.demo.page import write_page
from gateway.demo.playing.player import KEEP_VM_ABOVE_S, SEND_ABOVE_S, START_VM_ABOVE_S, FilePlayer, Player
from gateway.demo.playing.progress import Stages
from gateway.demo.repeated import order, repeated_table, write_reports
from gateway.demo.report import (
    Mode,
    Policy,
    Report,
    RunsByMode,
    Settings,
    make_report,
    shortfalls,
    summary_table,
    write_report,
)
from gateway.demo.stage import BILLING_PERIOD_S, LINK_DELAY_MS, LINK_MBIT_PER_S, MAX_VMS, Stage, StageError

_GENERATED: Final = 4000
_SEED: Final = 1


def main(
    mail: Path | None,
    out: Path,
    behind: Behind | None = None,
    pace: DemoPace = FULL,
    runs: int = 1,
    policy: Policy = "reactive",
) -> int:
    """Run the demo.

    Args:
        mail: an mbox file or a maildir; None plays generated mail.
        out: folder for ``report.html`` and ``report.json``, and with several runs for ``runs.json`` and the folders
            ``run-N`` with the reports of each; files of an earlier demo in it are removed.
        behind: the WAN in front of the VMs; None shapes their links in user space.
        pace: how much is played.
        runs: how often; the order of modes differs from run to run.
        policy: what decides about VMs.

    Returns:
        0 if every answer arrived once, in order, and every VM was terminated, in all runs; otherwise 1.
    """

    def player(stage: Stage, base: Sequence[Mail], stages: Stages) -> FilePlayer:
        return FilePlayer(stage, base, stages, pace.cold, policy)

    return perform(mail, out, player, behind=behind, pace=pace, runs=runs, policy=policy)


def perform(
    mail: Path | None,
    out: Path,
    player_of: Callable[[Stage, Sequence[Mail], Stages], Player],
    *,
    behind: Behind | None = None,
    pace: DemoPace = FULL,
    runs: int = 1,
    policy: Policy = "reactive",
    tell: Callable[[Console, Report, RunsByMode, Path], bool] | None = None,
) -> int:
    """Let a player play the demo, and report.

    Args:
        mail: as for ``main``, as are the others.
        out: likewise.
        player_of: makes the player, from its stage, the distinct mails, and what is told how far it is.
        behind: likewise.
        pace: likewise.
        runs: likewise.
        policy: likewise.
        tell: reports a run, and returns whether something was wrong. Default: ``tell_run``.
    """
    console = Console()
    base = distinct_mails(generate_mail(_GENERATED, _SEED) if mail is None else read_mail(mail))
    if not base:
        console.print(f"{mail} has no readable mail", style="red")
        return 1
    _clear(out)
    stage = Stage(out.absolute() / "stage", base, None if behind is None else behind.namespaces)
    try:
        with ExitStack() as ends, Stages(console) as stages:
            player = player_of(stage, base, stages)
            ends.callback(player.close)
            ends.callback(stage.clear)
            player.warm_up(pace)
            played = [player.play_run(pace, run, runs) for run in range(runs)]
    except StageError as error:
        console.print(str(error), style="red", markup=False)
        return 1
    said = f"{len(base)} generated mails" if mail is None else f"{len(base)} mails of {mail.name}"
    settings = [_settings(said, len(base), one.profile, behind, policy, order(run)) for run, one in enumerate(played)]
    reports = [make_report(one.by_mode, of_run, one.capacity) for one, of_run in zip(played, settings, strict=True)]
    folders = [out] if runs == 1 else [out / f"run-{run + 1}" for run in range(runs)]
    wrong = [
        (tell or tell_run)(console, report, one.by_mode, folder)
        for report, one, folder in zip(reports, played, folders, strict=True)
    ]
    if runs > 1:
        write_reports(reports, out / "runs.json")
        console.print(repeated_table(reports))
        console.print(f"Figures of all runs: {out / 'runs.json'}")
    return 1 if any(wrong) else 0


def _clear(out: Path) -> None:
    """Remove the files of an earlier demo; other files in the folder stay."""
    for folder in (out / "stage", *out.glob("run-*")):
        shutil.rmtree(folder, ignore_errors=True)
    for name in ("report.html", "report.json", "runs.json"):
        (out / name).unlink(missing_ok=True)


def tell_run(
    console: Console,
    report: Report,
    runs: RunsByMode,
    folder: Path,
    tables: Sequence[Table] = (),
    sections: Sequence[str] = (),
) -> bool:
    """Write and show a run; return whether something was wrong.

    Args:
        console: where.
        report: of the run.
        runs: of which it is.
        folder: for the files.
        tables: more to show.
        sections: more of the page, as HTML.
    """
    folder.mkdir(exist_ok=True)
    write_report(report, folder / "report.json")
    write_page(report, runs, folder / "report.html", sections)
    for table in (summary_table(report), *tables):
        console.print(table)
    if report.config.wan is not None:
        console.print(f"Across {report.config.wan}")
    console.print(f"Report with plots: {folder / 'report.html'}; figures: {folder / 'report.json'}")
    problems = shortfalls(report)
    for problem in problems:
        console.print(problem, style="red")
    return bool(problems)


def _settings(
    mail: str,
    base_mails: int,
    profile: Sequence[RateSegment],
    behind: Behind | None,
    policy: Policy,
    modes: tuple[Mode, ...],
) -> Settings:
    wan = None if behind is None else behind.settings
    rate = None if wan is None else wan.rate_bits_per_s
    return Settings(
        mail=mail,
        base_mails=base_mails,
        profile=tuple(profile),
        start_vm_above_s=START_VM_ABOVE_S,
        send_above_s=SEND_ABOVE_S,
        keep_vm_above_s=KEEP_VM_ABOVE_S,
        billing_period_s=BILLING_PERIOD_S,
        max_vms=MAX_VMS,
        link_delay_ms=LINK_DELAY_MS if wan is None else wan.delay_s * 1e3,
        link_mbit_per_s=LINK_MBIT_PER_S if rate is None else rate / 1e6,
        wan=None if behind is None else str(behind),
        policy=policy,
        order=modes,
    )
