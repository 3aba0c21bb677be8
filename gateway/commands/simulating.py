"""``spillway simulate`` with a file of graphs instead of a gateway's config."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.commands.common import BAD_INPUT, FAILED, fail


def graphs_of(path: Path) -> bool:
    """Return whether a file has graphs and not a gateway's config; exit if it is neither."""
    from gateway.config import ConfigError
    from gateway.simulate.graphs.reading import is_graphs

    try:
        return is_graphs(path)
    except ConfigError as error:
        fail(str(error), BAD_INPUT)


def simulated_graphs(
    path: Path, seed: int, load_for: str | None, report: Path | None, html: Path | None, not_for_graphs: Sequence[str]
) -> None:
    """Simulate graphs and print the result; exit if the file or an option is wrong."""
    from gateway.config import ConfigError
    from gateway.simulate.graphs.command import BadGraphsError, simulate_graphs

    try:
        simulate_graphs(path, seed, load_for, report, html, not_for_graphs)
    except (ConfigError, BadGraphsError) as error:
        fail(str(error), BAD_INPUT)
    except OSError as error:
        fail(f"{error.filename or report or html}: {error.strerror or error}", FAILED)
