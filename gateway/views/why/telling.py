"""Decisions of the ledger as sentences, for ``spillway why`` and the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from gateway.config.words.units import UnitError, duration_s


def sentences(line: Mapping[str, Any]) -> list[str]:
    """Return what was measured, what the policy and the plain rules wanted, what was done, and the other options' cost.

    Args:
        line: of the ledger of decisions.
    """
    said = [
        f"{line['query']} at {line['at']}: {line['verdict']}.",
        f"  Seen: {_seen(line['seen'])}.",
        f"  VMs: {_vms(line['vms'])}. Policy {line['policy']}: {_policy(line)}.",
    ]
    if line["forecast"] is not None:
        said.append(f"  {_forecast(line['forecast'])}")
    said += [f"  {equation}." for equation in line.get("equations", ())]
    said += [f"  {boot}." for boot in _boot(line)]
    said += [f"  Rule {name} would want {verdict}." for name, verdict in line["rules"].items()]
    said += [
        f"  {_counted(option['vms'])} would cost {option['usd']:.6f} USD{_chosen(option, line)}."
        for option in line["options"]
    ]
    said += [f"  {slow}." for slow in line.get("slow", ())]
    said += [f"  Failed before this VM was ready: {failure}." for failure in line.get("setbacks", ())]
    said += [f"  Done: {action['what']} {action['of']}, because {action['why']}." for action in line["actions"]]
    if not line["actions"]:
        said.append(f"  Nothing was done{': ' + line['vm_note'] if line['vm_note'] else ''}.")
    return said


class Explained(NamedTuple):
    """A decision of the ledger, taken apart.

    Attributes:
        done: what was done and why.
        why: what was measured and expected, and what the policy wanted.
        why_not: what else there was, and why it was not done.
    """

    done: list[str]
    why: list[str]
    why_not: list[str]


_DONE: Final = {
    "StartVm": "{} is launched",
    "DrainVm": "{} is drained",
    "TerminateVm": "{} is terminated",
    "SetRoute": "the route of {} changes",
    "SetShed": "the part of {} that is shed changes",
}


def explained(line: Mapping[str, Any]) -> Explained:
    """Return the parts of a decision as sentences.

    Args:
        line: of the ledger of decisions.
    """
    done = [
        f"{_DONE.get(action['what'], action['what'] + ' {}').format(action['of'])}: {action['why']}."
        for action in line["actions"]
    ]
    why = [f"Seen: {_seen(line['seen'])}.", f"VMs: {_vms(line['vms'])}."]
    why.append(f"Policy {line['policy']}: {_policy(line)}.")
    if line["forecast"] is not None:
        why.append(_forecast(line["forecast"]))
    why += [f"{equation}." for equation in line.get("equations", ())]
    why += [f"{boot}." for boot in _boot(line)]
    why += [f"{slow}." for slow in line.get("slow", ())]
    why += [f"Failed before this VM was ready: {failure}." for failure in line.get("setbacks", ())]
    why_not = [] if line["actions"] or not line["vm_note"] else [f"No VM is launched or terminated: {line['vm_note']}."]
    why_not += [f"Rule {name} would want {verdict}." for name, verdict in line["rules"].items()]
    why_not += [
        f"{_counted(option['vms'])} would cost {option['usd']:.6f} USD{_chosen(option, line)}."
        for option in line["options"]
    ]
    return Explained(done, why, why_not)


def _counted(vms: int) -> str:
    return "1 VM" if vms == 1 else f"{vms} VMs"


def _forecast(forecast: Mapping[str, Any]) -> str:
    return (
        f"Forecast: {forecast['rate']:.4g} events/s in {forecast['in_s']:.3g} s, nine times of ten between "
        f"{forecast['low']:.4g} and {forecast['high']:.4g}."
    )


def _seen(seen: Mapping[str, Any]) -> str:
    return (
        f"latency {seen['latency_s']:.2f} s, {seen['input_rate']:.4g} events/s arrive, "
        f"{seen['open_events']} are being processed, {seen['backlog_events']} wait"
    )


def _vms(vms: Mapping[str, str]) -> str:
    return ", ".join(f"{name} is {state}" for name, state in vms.items()) or "none"


def _boot(line: Mapping[str, Any]) -> list[str]:
    """Return how long a VM is expected to boot; nothing for a line of a gateway that did not learn it."""
    boot = line.get("boot")
    if boot is None:
        return []
    expected = f"A VM that is ordered now is expected to serve in {boot['expected_s']:.3g} s"
    if not boot["boots"]:
        return [f"{expected}, as boot says: no boot was seen yet"]
    return [f"{expected}, by the last boots ({boot['boots']}); boot says {boot['configured_s']:g} s"]


def _policy(line: Mapping[str, Any]) -> str:
    if line["wanted"] is None:
        return line["why"] or "equation 1 decides, by latency and by what was sent to a VM"
    return f"{line['why']} (wanted {line['wanted']}, kept {line['kept']})"


def _chosen(option: Mapping[str, Any], line: Mapping[str, Any]) -> str:
    return ", which was chosen" if option["vms"] == line["wanted"] else ""


def moment(text: str, now_s: float) -> float:
    """Return the time that a user gave, in seconds since 1970.

    Args:
        text: ``10m`` for ten minutes ago, or a date and time as in ``2026-03-01T12:30:00``, UTC unless it says else.
        now_s: now.

    Raises:
        ValueError: it is neither.
    """
    try:
        return now_s - duration_s(text)
    except UnitError:
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f'"{text}" is not a time; write how long ago, as in 10m, or a time in UTC, as in 2026-03-01T12:30:00'
        ) from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
