"""Reads a file of graphs, into one error that lists every problem with its line and what to do."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gateway.config.explain import explain
from gateway.config.load import ConfigError, Problem, YamlReader, parse
from gateway.simulate.graphs.checks import problems
from gateway.simulate.graphs.model import GraphsFile

_OF_GRAPHS = "graphs"
_OF_CONFIGS = ("queries", "gateway", "private", "cloud")


def is_graphs(path: Path) -> bool:
    """Return whether a file has graphs; else it is a gateway's config.

    Raises:
        ConfigError: it is neither, or both, or cannot be read.
    """
    document = parse(path)
    configured = [key for key in _OF_CONFIGS if key in document]
    if _OF_GRAPHS not in document:
        if configured:
            return False
        text = "is neither a gateway's config (it has no queries:) nor a file of graphs (it has no graphs:)"
        raise ConfigError([Problem(path, 1, "", f"{text}; see examples/email.yaml and examples/graph.yaml")])
    if configured:
        text = f"a file with graphs: cannot have {configured[0]}:, which belongs to a gateway's config; remove one"
        raise ConfigError([YamlReader(path, document, {}).problem((configured[0],), text)])
    return True


def read_graphs(path: Path, changes: Mapping[str, Any] | None = None) -> GraphsFile:
    """Read and check a file of graphs.

    Args:
        path: of the file.
        changes: values that replace those at the top of the file.

    Raises:
        ConfigError: lists every problem that was found.
    """
    document = parse(path)
    reader = YamlReader(path, document, os.environ)
    plain = {**reader.plain(document, ()), **(changes or {})}
    try:
        file = GraphsFile.model_validate(plain)
    except ValidationError as error:
        wrong = dict.fromkeys(explain(error, plain, GraphsFile.model_json_schema()))
        raise ConfigError(reader.problems + [reader.problem(key, text) for key, text in wrong]) from error
    found = reader.problems + [reader.problem(key, text) for key, text in problems(file)]
    if found:
        raise ConfigError(found)
    return file
