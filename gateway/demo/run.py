"""``spillway demo``: measures home's capacity, then plays mail with two spikes three times, on real gateways."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from engines.email.generator import generate_mail
from engines.email.mailbox import Mail, read_mail
from gateway.demo.behind import Behind
from gateway.demo.load import FULL, DemoPace, RateSegment, distinct_mails, event_count, loops_needed, spikes
from gateway.demo.page import write_page
from gateway.demo.repeated import order, repeated_table, write_reports
from gateway.demo.report import (
    TITLES,
    Mode,
    ModeRun,
    Policy,
    Report,
    RunsByMode,
    Settings,
    make_report,
    shortfalls,
    summary_table,
    write_report,
)
from gateway.demo.stage import (
    BILLING_PERIOD_S,
    BOOT_S,
    COLD_BOOT_S,
    LINK_DELAY_MS,
    LINK_MBIT_PER_S,
    MAX_VMS,
    Stage,
    StageError,
)
from gateway.demo.verify import ExpectedResults, verify
from gateway.views.runrecord import GatewayRecord

_GENERATED: Final = 4000
_SEED: Final = 1
_FILLING_SLOTS: Final = 2
_DEADLINE_S: Final = 240.0
_START_VM_ABOVE_S, _SEND_ABOVE_S, _KEEP_VM_ABOVE_S = 3.0, 2.0, 1.0
_SWITCHING: Final = {
    "start_vm_above": f"{_START_VM_ABOVE_S:g}s",
    "send_above": f"{_SEND_ABOVE_S:g}s",
    "keep_vm_above": f"{_KEEP_VM_ABOVE_S:g}s",
    "keep_vm_bytes": "1MB",
    "tolerance": "1s",
}
# Most of the mail goes to the VM from the first moment on: home has its own afterwards.
_WARM_UP: Final = {
    "switching": {
        "mode": "data",
        "share": "65%",
        "start_vm_above": "20ms",
        "send_above": "10ms",
        "keep_vm_above": "5ms",
        "tolerance": "0s",
    }
}
_OFF: Final = {"switching": {**_SWITCHING, "mode": "off"}}
_PAYLOADS: Final[Mapping[Mode, Mapping[str, Any]]] = {
    "elastic": {"trim": False, "filter": False, "compress": "none"},
    "elastic_compressed": {"trim": True, "filter": True, "compress": "auto"},
}


class Stages:
    """Says where the demo is: on a terminal a bar for each stage; elsewhere a line when one begins, and when it ends.

    Args:
        console: where.
    """

    def __init__(self, console: Console) -> None:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[said]}"),
        )
        self._console = console
        self._progress = Progress(*columns, console=console, disable=not console.is_terminal)

    def __enter__(self) -> Stages:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, title: str, total: float) -> TaskID:
        """Begin a stage, and return what names it; ``total`` is what ``done`` will be at its end."""
        self._line(f"{title}: begins")
        return self._progress.add_task(title, total=total, said="starting")

    def show(self, stage: TaskID, done: float, said: str) -> None:
        """Show how far it is."""
        self._progress.update(stage, completed=done, said=said)

    def end(self, stage: TaskID, done: float, said: str) -> None:
        """End it."""
        self.show(stage, done, said)
        self._line(f"{self._progress.tasks[stage].description}: {said}")

    def _line(self, text: str) -> None:
        if not self._console.is_terminal:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)


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
    console = Console()
    base = distinct_mails(generate_mail(_GENERATED, _SEED) if mail is None else read_mail(mail))
    if not base:
        console.print(f"{mail} has no readable mail", style="red")
        return 1
    _clear(out)
    stage = Stage(out.absolute() / "stage", base, None if behind is None else behind.namespaces)
    try:
        with Stages(console) as stages:
            player = _Player(stage, base, stages, pace.cold, policy)
            # A VM that starts later cannot be warmed up before.
            player.play_all_out("warm-up", "warm-up", _OFF if pace.cold else _WARM_UP, pace.warm_up_events)
            played = [player.play_run(pace, run, runs) for run in range(runs)]
    except StageError as error:
        console.print(str(error), style="red")
        return 1
    finally:
        stage.clear()
    said = f"{len(base)} generated mails" if mail is None else f"{len(base)} mails of {mail.name}"
    settings = [_settings(said, len(base), one.profile, behind, policy, order(run)) for run, one in enumerate(played)]
    reports = [make_report(one.by_mode, of_run, one.capacity) for one, of_run in zip(played, settings, strict=True)]
    folders = [out] if runs == 1 else [out / f"run-{run + 1}" for run in range(runs)]
    wrong = [
        _tell(console, report, one.by_mode, folder)
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


@dataclass(frozen=True, slots=True)
class _PlayedRun:
    """A run: the rate that home sustained just before, the profile that follows from it, and what each mode did."""

    capacity: float
    profile: Sequence[RateSegment]
    by_mode: RunsByMode


@dataclass(frozen=True, slots=True)
class _Player:
    """Plays mail on a stage.

    Attributes:
        stage: where.
        base: the distinct mails.
        stages: told how far it is.
        cold: whether VMs start their Spark only once they are ordered.
        policy: what decides about VMs.
    """

    stage: Stage
    base: Sequence[Mail]
    stages: Stages
    cold: bool
    policy: Policy

    def play_run(self, pace: DemoPace, run: int, runs: int) -> _PlayedRun:
        """Measure what home sustains now, and play each mode.

        Home's speed differs from run to run: its host goes on compiling, and the machine has other work.
        """
        name, title = "sustained", "the rate that home sustains"
        if runs > 1:
            name, title = f"{name}-{run + 1}", f"run {run + 1}, {title}"
        capacity = _sustained(self.play_all_out(name, title, _OFF, pace.capacity_events))
        profile = spikes(capacity, pace)
        return _PlayedRun(capacity, profile, self.play_modes(profile, run, runs))

    def play_all_out(self, name: str, title: str, query: Mapping[str, Any], events: int) -> GatewayRecord:
        """Play ``events`` mails as fast as the engines process them."""
        bar = self.stages.begin(title, events)

        def show(_: float, status: Mapping[str, Any]) -> None:
            said = status["queries"].get(name)
            if said:
                self.stages.show(bar, said["events"], f"{said['events']} mails")

        replay = {"loops": loops_needed(events, len(self.base)), "id": "message_id"}
        record = self.stage.play(
            name, replay, query, show, boot_s=0, cold=self.cold, keep_hosts=True, deadline_s=_DEADLINE_S
        )
        self.stages.end(bar, events, f"{record.totals.events} mails")
        return record

    def play_modes(self, profile: Sequence[RateSegment], run: int, runs: int) -> RunsByMode:
        """Play the profile in each mode, in the order of a run; results stay on disk if there is one run."""
        expected = ExpectedResults(self.base)
        loops = loops_needed(event_count(profile), len(self.base))
        played: RunsByMode = {}
        modes = order(run)
        for mode in modes:
            name, title = (mode, TITLES[mode]) if runs == 1 else (f"{mode}-{run + 1}", f"run {run + 1}, {TITLES[mode]}")
            last = run == runs - 1 and mode == modes[-1]
            record = self._play(name, title, _query(mode, self.policy), profile, loops, keep_hosts=not last)
            verdict = verify(self.stage.sink(name), expected, loops * len(self.base))
            played[mode] = ModeRun(record=record, verdict=verdict)
            if runs > 1:
                self.stage.forget(name)
        return {mode: played[mode] for mode in TITLES}

    def _play(
        self,
        name: str,
        title: str,
        query: Mapping[str, Any],
        profile: Sequence[RateSegment],
        loops: int,
        *,
        keep_hosts: bool,
    ) -> GatewayRecord:
        planned_s = sum(step.duration_s for step in profile)
        bar = self.stages.begin(title, planned_s)

        def show(elapsed_s: float, status: Mapping[str, Any]) -> None:
            self.stages.show(bar, min(elapsed_s, planned_s), _said(name, status))

        record = self.stage.play(
            name,
            {
                "profile": [{"for": f"{step.duration_s:g}s", "rate": f"{step.events_per_s:.3f}/s"} for step in profile],
                "loops": loops,
                "id": "message_id",
            },
            query,
            show,
            boot_s=COLD_BOOT_S if self.cold else BOOT_S,
            cold=self.cold,
            keep_hosts=keep_hosts,
            deadline_s=_DEADLINE_S + planned_s,
        )
        self.stages.end(bar, planned_s, f"mean latency {record.totals.latency_ms.mean / 1e3:.2f} s")
        return record


def _query(mode: Mode, policy: Policy) -> Mapping[str, Any]:
    """Return what the config of a mode says besides source, SQL and sink."""
    if mode == "private_only":
        return _OFF
    return {"switching": _SWITCHING, "payload": _PAYLOADS[mode], "policy": {"type": policy}}


def _sustained(record: GatewayRecord) -> float:
    """Return the events/s that an engine sustained: the mean over the full slots of the second half.

    In the first half its JIT compilers still work: measured there, a spike of twice the capacity would be far less.
    """
    slots = record.slots
    rates = [slot.completed_rate for slot in slots[max(_FILLING_SLOTS, len(slots) // 2) : -1]]
    if not rates:
        raise StageError(
            "too few slots to measure the rate that home sustains; this machine is too fast for the demo's load"
        )
    return statistics.fmean(rates)


def _said(name: str, status: Mapping[str, Any]) -> str:
    query = status["queries"].get(name)
    if not query:
        return str(status["phase"])
    vms = ", ".join(f"{name} {state}" for name, state in status["vms"].items()) or "no VM"
    return (
        f"{query['events']} mails, {query['latency_s']:.1f} s late, {vms}, {query['share_to_cloud']:.0%} to the cloud"
    )


def _tell(console: Console, report: Report, runs: RunsByMode, folder: Path) -> bool:
    """Write and show a run; return whether something was wrong."""
    folder.mkdir(exist_ok=True)
    write_report(report, folder / "report.json")
    write_page(report, runs, folder / "report.html")
    console.print(summary_table(report))
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
        start_vm_above_s=_START_VM_ABOVE_S,
        send_above_s=_SEND_ABOVE_S,
        keep_vm_above_s=_KEEP_VM_ABOVE_S,
        billing_period_s=BILLING_PERIOD_S,
        max_vms=MAX_VMS,
        link_delay_ms=LINK_DELAY_MS if wan is None else wan.delay_s * 1e3,
        link_mbit_per_s=LINK_MBIT_PER_S if rate is None else rate / 1e6,
        wan=None if behind is None else str(behind),
        policy=policy,
        order=modes,
    )
