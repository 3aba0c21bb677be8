"""``spillway demo``: measures home's capacity, then plays mail with two spikes three times, on real gateways."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from engines.email.generator import generate_mail
from engines.email.mailbox import Mail, read_mail
from gateway.demo.behind import Behind
from gateway.demo.load import FULL, DemoPace, RateSegment, distinct_mails, event_count, loops_needed, spikes
from gateway.demo.page import write_page
from gateway.demo.report import (
    TITLES,
    Mode,
    ModeRun,
    RunsByMode,
    Settings,
    make_report,
    shortfalls,
    summary_table,
    write_report,
)
from gateway.demo.stage import (
    BILLING_PERIOD_S,
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
_QUERIES: Final[Mapping[Mode, Mapping[str, Any]]] = {
    "private_only": _OFF,
    "elastic": {"switching": _SWITCHING, "payload": {"trim": False, "filter": False, "compress": "none"}},
    "elastic_compressed": {"switching": _SWITCHING, "payload": {"trim": True, "filter": True, "compress": "auto"}},
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


def main(mail: Path | None, out: Path, behind: Behind | None = None, pace: DemoPace = FULL) -> int:
    """Run the demo.

    Args:
        mail: an mbox file or a maildir; None plays generated mail.
        out: folder for ``report.html`` and ``report.json``; files of an earlier demo in it are removed.
        behind: the WAN in front of the VMs; None shapes their links in user space.
        pace: how much is played.

    Returns:
        0 if every answer arrived once, in order, and every VM was terminated; otherwise 1.
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
            _play_all_out(stage, "warm-up", _WARM_UP, pace.warm_up_events, len(base), stages)
            record = _play_all_out(stage, "the rate that home sustains", _OFF, pace.capacity_events, len(base), stages)
            capacity = _sustained(record)
            profile = spikes(capacity, pace)
            runs = _play_all(stage, base, profile, stages)
    except StageError as error:
        console.print(str(error), style="red")
        return 1
    finally:
        stage.clear()
    said = f"{len(base)} generated mails" if mail is None else f"{len(base)} mails of {mail.name}"
    return _tell(console, runs, _settings(said, len(base), profile, behind), capacity, out)


def _clear(out: Path) -> None:
    """Remove the files of an earlier demo; other files in the folder stay."""
    shutil.rmtree(out / "stage", ignore_errors=True)
    for name in ("report.html", "report.json"):
        (out / name).unlink(missing_ok=True)


def _play_all_out(
    stage: Stage, title: str, query: Mapping[str, Any], events: int, base: int, stages: Stages
) -> GatewayRecord:
    """Play ``events`` mails as fast as the engines process them."""
    bar = stages.begin(title, events)
    name = title.replace(" ", "-")

    def show(_: float, status: Mapping[str, Any]) -> None:
        said = status["queries"].get(name)
        if said:
            stages.show(bar, said["events"], f"{said['events']} mails")

    replay = {"loops": loops_needed(events, base), "id": "message_id"}
    record = stage.play(name, replay, query, show, boot_s=0, keep_hosts=True, deadline_s=_DEADLINE_S)
    stages.end(bar, events, f"{record.totals.events} mails")
    return record


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


def _play_all(stage: Stage, base: Sequence[Mail], profile: Sequence[RateSegment], stages: Stages) -> RunsByMode:
    expected = ExpectedResults(base)
    loops = loops_needed(event_count(profile), len(base))
    replay = {
        "profile": [{"for": f"{step.duration_s:g}s", "rate": f"{step.events_per_s:.3f}/s"} for step in profile],
        "loops": loops,
        "id": "message_id",
    }
    runs: RunsByMode = {}
    for mode, query in _QUERIES.items():
        record = _play(stage, mode, replay, query, sum(step.duration_s for step in profile), stages)
        runs[mode] = ModeRun(record=record, verdict=verify(stage.sink(mode), expected, loops * len(base)))
    return runs


def _play(
    stage: Stage, mode: Mode, replay: Mapping[str, Any], query: Mapping[str, Any], planned_s: float, stages: Stages
) -> GatewayRecord:
    bar = stages.begin(TITLES[mode], planned_s)

    def show(elapsed_s: float, status: Mapping[str, Any]) -> None:
        stages.show(bar, min(elapsed_s, planned_s), _said(mode, status))

    last = mode == list(_QUERIES)[-1]
    record = stage.play(mode, replay, query, show, keep_hosts=not last, deadline_s=_DEADLINE_S)
    stages.end(bar, planned_s, f"mean latency {record.totals.latency_ms.mean / 1e3:.2f} s")
    return record


def _said(mode: Mode, status: Mapping[str, Any]) -> str:
    query = status["queries"].get(mode)
    if not query:
        return str(status["phase"])
    vms = ", ".join(f"{name} {state}" for name, state in status["vms"].items()) or "no VM"
    return (
        f"{query['events']} mails, {query['latency_s']:.1f} s late, {vms}, {query['share_to_cloud']:.0%} to the cloud"
    )


def _tell(console: Console, runs: RunsByMode, settings: Settings, capacity: float, out: Path) -> int:
    report = make_report(runs, settings, capacity)
    write_report(report, out / "report.json")
    write_page(report, runs, out / "report.html")
    console.print(summary_table(report))
    if settings.wan is not None:
        console.print(f"Across {settings.wan}")
    console.print(f"Report with plots: {out / 'report.html'}; figures: {out / 'report.json'}")
    problems = shortfalls(report)
    for problem in problems:
        console.print(problem, style="red")
    return 1 if problems else 0


def _settings(mail: str, base_mails: int, profile: Sequence[RateSegment], behind: Behind | None) -> Settings:
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
    )
