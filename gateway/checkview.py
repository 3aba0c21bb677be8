"""Shows on a terminal what ``spillway check`` found."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from engines.session import SessionError
from gateway.checking import analyse, explain, source_text
from gateway.config import Config
from gateway.config.load import problem_at
from gateway.mastercheck import KEY, MasterAwayError, see_master

FAILED = 1
BAD_INPUT = 2


def show(path: Path, config: Config) -> int:
    """Plan and explain all queries; return the exit code: 1 without Spark or its master, 2 when it refuses a query."""
    out, err = Console(), Console(stderr=True)
    code = 0
    try:
        see_master(config.private.spark.master)
    except MasterAwayError as error:
        # The queries' plans do not need it.
        code = FAILED
        err.print(str(problem_at(path, KEY, error.why)), style="red", markup=False, soft_wrap=True)
    try:
        with err.status("") as status:
            found = analyse(config, status.update)
    except SessionError as error:
        err.print(f"the config is valid, but the queries cannot be planned: {error}", style="red", markup=False)
        err.print("spillway check --no-plan validates without Spark", markup=False)
        return FAILED
    for name, query in config.queries.items():
        analysed = found[name]
        if analysed.refusal:
            code = BAD_INPUT
            key = ("queries", name, "sql" if query.sql else "function")
            err.print(str(problem_at(path, key, analysed.refusal)), style="red", markup=False, soft_wrap=True)
            continue
        table = Table(title=Text(name, style="bold"), title_justify="left", show_header=False, box=None, pad_edge=False)
        table.add_column(style="cyan", no_wrap=True)
        table.add_column(overflow="fold")
        table.add_row("source", Text(source_text(query)))
        for label, text in explain(query, analysed, config.cloud.max_vms):
            table.add_row(label, Text(text))
        out.print(table)
        out.print()
    return code
