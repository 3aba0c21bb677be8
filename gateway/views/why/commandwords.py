"""The scheduler's commands as lines of the log."""

from __future__ import annotations

from gateway.config.words.units import SHARE
from policies.signals import HOME, Ask, Command, DrainVm, Fit, SetRoute, SetShed, StartVm, TerminateVm

_SHARE_CHANGE_LEAST, _SHARE_FALL_LEAST = 0.1, 0.5


class CommandLines:
    """Which commands the log shows, as lines.

    A share may change in each slot. While the places are the same, it is shown again when a share has changed by a
    tenth of all events, or has fallen below half of what was shown; ``spillway why`` has the others.
    """

    def __init__(self) -> None:
        self._said: dict[str, dict[str, float]] = {}

    def line(self, command: Command) -> str:
        """Return a command in words; empty if the log does not show it."""
        if isinstance(command, SetRoute):
            shares, said = dict(command.shares), self._said.get(command.query, {})
            if shares.keys() == said.keys() and all(_is_close(said[place], shares[place]) for place in shares):
                return ""
            self._said[command.query] = shares
        return in_words(command)


def _is_close(said: float, share: float) -> bool:
    return abs(share - said) < _SHARE_CHANGE_LEAST and share >= _SHARE_FALL_LEAST * said


def in_words(command: Command) -> str:
    """Return what is done and why, as one line; empty for a question to the policies."""
    done = _done(command)
    return f"{done}: {command.cause.why}" if done else ""


def _done(command: Command) -> str:
    match command:
        case StartVm(vm=vm):
            return f"launch {vm}"
        case DrainVm(vm=vm):
            return f"drain {vm}"
        case TerminateVm(vm=vm):
            return f"terminate {vm}"
        case SetRoute(query=query, shares=shares):
            return f"query {query}: {_places(shares)}"
        case SetShed(query=query, share=share):
            shed = f"{SHARE.format(share)} of its events" if share else "no events"
            return f"query {query}: {shed} are shed"
        case Fit(query=query):
            return f"query {query}: bring its models up to date"
        case Ask():
            return ""


def _places(shares: tuple[tuple[str, float], ...]) -> str:
    if dict(shares) == {HOME: 1.0}:
        return "all events stay home"
    there = [f"{SHARE.format(round(share, 3))} to {'home' if place == HOME else place}" for place, share in shares]
    return ", ".join(there)
