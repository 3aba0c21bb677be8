"""The data and the text of a report."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final

import msgspec

from gateway.config import Config
from gateway.views.http import livepage
from gateway.views.http.answers import decision_answer, thresholds_answer
from gateway.views.live.history import minutes_between
from gateway.views.live.moments import Moment
from gateway.views.report.bundling import bundled
from gateway.views.why.decisions import decisions_before

DECISIONS_MOST: Final = 500


@dataclass(frozen=True)
class Period:
    """A period of time, in seconds since 1970."""

    from_s: float
    to_s: float


class ReportError(Exception):
    """There is nothing to report; the message says why."""


def report_page(config: Config, period: Period, made_s: float, running: Sequence[Moment] = ()) -> str:
    """Return the page.

    Args:
        config: whose state_dir is read.
        period: what is reported.
        made_s: now, in seconds since 1970.
        running: moments that a running gateway knows, oldest first; they count instead of those on disk.

    Raises:
        ReportError: nothing is known of the period.
        OSError: the ledger of decisions cannot be read.
    """
    moments = _moments(config, period, running)
    before = [moment for moment in moments if moment.id / 1000 <= period.from_s]
    shown = [moment for moment in moments if period.from_s < moment.id / 1000 <= period.to_s]
    if not shown:
        history = config.gateway.state_dir / "history"
        raise ReportError(f"nothing is known of this time: {history} has no moment of it; no gateway ran then")
    return _page(_data(config, period, made_s, shown, before[-1].usd if before else 0.0))


def _moments(config: Config, period: Period, running: Sequence[Moment]) -> list[Moment]:
    # One moment before the period tells what had been spent until then.
    known = minutes_between(config.gateway.state_dir / "history", period.from_s - 300.0, period.to_s)
    first_id = running[0].id - running[0].for_s * 1000 if running else float("inf")
    return [*(moment for moment in known if moment.id <= first_id), *running]


def _data(config: Config, period: Period, made_s: float, moments: Sequence[Moment], spent_usd: float) -> dict[str, Any]:
    names = dict.fromkeys([*config.queries, *(name for moment in moments for name in moment.queries)])
    lines = decisions_before(config.gateway.state_dir / "decisions", None, period.to_s, DECISIONS_MOST)
    return {
        "config": str(config.file or ""),
        "state_dir": str(config.gateway.state_dir),
        "version": version("spillway"),
        "made_s": made_s,
        "from_s": max(period.from_s, moments[0].id / 1000 - moments[0].for_s),
        "to_s": min(period.to_s, moments[-1].id / 1000),
        "queries": [name for name in names if any(name in moment.queries for moment in moments)],
        "thresholds": {name: thresholds_answer(query).model_dump() for name, query in config.queries.items()},
        "moments": [msgspec.to_builtins(msgspec.structs.replace(moment, decisions=())) for moment in moments],
        "decisions": [decision_answer(line).model_dump() for line in lines if line["wall_s"] >= period.from_s],
        "usd": cost_usd(moments, spent_usd),
        "vm_s": sum(moment.for_s * len(moment.vms) for moment in moments),
    }


def cost_usd(moments: Iterable[Moment], spent_usd: float) -> float:
    """Return what VMs cost in some consecutive moments.

    Args:
        moments: each has what its gateway had spent until then; a new gateway begins at 0.
        spent_usd: what had been spent before the first.
    """
    total, before = 0.0, spent_usd
    for moment in moments:
        total += moment.usd - before if moment.usd >= before else moment.usd
        before = moment.usd
    return total


def _page(data: dict[str, Any]) -> str:
    folder = files(livepage) / "files"

    def read(name: str) -> str:
        return (folder / name).read_text(encoding="utf-8")

    script, uplot = bundled("report.js", read), read("uplot.js")
    style = read("uplot.css") + read("page.css")
    # In a script element, text ends only at its end tag; "<" can be written differently in JSON.
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    return read("report.html").format(
        scripts=f"{_hash(uplot)} {_hash(script)}",
        styles=_hash(style),
        style=style,
        license=read("uplot-license.txt"),
        data=text,
        uplot=uplot,
        script=script,
    )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
