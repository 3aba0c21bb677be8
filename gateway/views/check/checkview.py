"""Shows on a terminal what ``spillway check`` found."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from gateway.config import Config, ConfigError, load
from gateway.config.configstate import why_not_this_config
from gateway.config.load import problem_at
from gateway.connectors.servertls import server_context
from gateway.hosts.mastercheck import KEY, MasterAwayError, see_master
from gateway.views.check.checking import Analysed, OverlapOf, analyse, explain, fail_over_text
from gateway.views.check.checksource import other_readers_text, source_text
from gateway.views.check.checkstate import Found, look_at_state
from infra.clienttls import BadTlsFilesError
from infra.clock import SystemClock
from infra.statefiles import StateError

FAILED = 1
BAD_INPUT = 2


def show(path: Path, overlap_of: OverlapOf, *, plan: bool) -> int:
    """Print everything that ``run`` would refuse in a config, and explain the queries that it would run.

    Args:
        path: the config file.
        overlap_of: see ``checking.OverlapOf``.
        plan: also ask Spark.

    Returns:
        The exit code: 1 without Spark, 2 when the config or a query would be refused.
    """
    out, err = Console(), Console(stderr=True)
    config, code = _loaded(path, err)
    if config is None:
        return code
    for key, look in _GATEWAY_LOOKS:
        if why := look(config):
            _say(err, str(problem_at(path, ("gateway", *key), why)))
            code = BAD_INPUT
    try:
        see_master(config.private.spark.master, SystemClock())
    except MasterAwayError as error:
        # The queries' plans do not need it.
        code = code or FAILED
        _say(err, str(problem_at(path, KEY, error.why)))
    states = {name: look_at_state(config, name) for name in config.queries}
    found: Mapping[str, Analysed] = {}
    if plan:
        from engines.spark.session import SessionError

        try:
            with err.status("") as status:
                found = analyse(config, status.update, overlap_of)
        except SessionError as error:
            _say(err, f"the config is valid, but the queries cannot be planned: {error}")
            err.print("spillway check --no-plan validates without Spark", markup=False)
            code = code or FAILED
    refused = _refused(path, config, states, found, err)
    for name in found:
        if name not in refused:
            _explain(out, config, name, found[name], states[name])
    if not plan and not refused and not code:
        out.print(f"{path}: ok ({len(config.queries)} queries)", markup=False, highlight=False, soft_wrap=True)
    return BAD_INPUT if refused else code


def _loaded(path: Path, err: Console) -> tuple[Config | None, int]:
    """Return the config, without the queries that have mistakes, so that the others are checked as well."""
    try:
        return load(path), 0
    except ConfigError as error:
        _say(err, str(error))
        wrong = {problem.query for problem in error.problems}
    if "" in wrong:
        return None, BAD_INPUT
    try:
        return load(path, without=wrong), BAD_INPUT
    except ConfigError:
        # No query is left, or one reads the results of one that has a mistake.
        return None, BAD_INPUT


def _why_not_here(config: Config) -> str:
    try:
        return why_not_this_config(config)
    except StateError as error:
        return str(error)


def _why_no_tls(config: Config) -> str:
    tls = config.gateway.api.tls
    try:
        if tls is not None:
            server_context(tls)
    except BadTlsFilesError as error:
        return str(error)
    return ""


_GATEWAY_LOOKS: Final = ((("state_dir",), _why_not_here), (("api", "tls"), _why_no_tls))
"""What ``run`` would refuse of the gateway itself: a key of its section, and a function that returns why."""


def _refused(
    path: Path, config: Config, states: Mapping[str, Found], found: Mapping[str, Analysed], err: Console
) -> set[str]:
    """Print which queries would not run, each with all its problems."""
    wrong: dict[str, list[tuple[str, str]]] = {}
    for name, query in config.queries.items():
        if name in found and (why := found[name].refusal):
            wrong.setdefault(name, []).append(("sql" if query.sql else "function", why))
        if why := states[name].refusal:
            wrong.setdefault(name, []).append(("", why))
    end = "the others run" if len(wrong) < len(config.queries) else "no other query is left"
    for name, problems in wrong.items():
        for key, why in problems:
            place = ("queries", name, key) if key else ("queries", name)
            _say(err, str(problem_at(path, place, f"this query would not be opened, and {end}: {why}")))
    return set(wrong)


def _say(err: Console, text: str) -> None:
    err.print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def _explain(out: Console, config: Config, name: str, found: Analysed, state: Found) -> None:
    query = config.queries[name]
    table = Table(title=Text(name, style="bold"), title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")
    for stream, source in query.inputs.items():
        table.add_row(f"source {stream}".strip(), Text(source_text(source)))
    if readers := other_readers_text(config.queries, name):
        table.add_row("also read by", Text(readers))
    if state.text:
        table.add_row("state", Text(state.text))
    if config.gateway.fleet is not None:
        plan = found.plan
        stateful = plan is not None and plan.stateful
        table.add_row("fail-over", Text(fail_over_text(config.gateway, query, stateful=stateful)))
    for label, text in explain(query, found, config.cloud.max_vms, config.private):
        table.add_row(label, Text(text))
    out.print(table)
    out.print()
