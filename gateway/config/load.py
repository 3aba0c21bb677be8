"""Reads a YAML file into a Config, or into one error that lists every problem with its line and what to do."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from gateway.config.explain import Key, explain
from gateway.config.models import Config
from gateway.config.partial import unseen

_FILE_BYTES_MAX: Final = 2**20
_VARIABLE: Final = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}")


@dataclass(frozen=True)
class Problem:
    """One problem: ``line`` counts from 1, ``key`` is the dotted path, ``text`` says what is wrong and what to do.

    ``query`` is the query that it belongs to; empty if it belongs to none.
    """

    path: Path
    line: int
    key: str
    text: str
    query: str = ""

    def __str__(self) -> str:
        where = f"{self.path}:{self.line}: "
        return f"{where}{self.key}: {self.text}" if self.key else f"{where}{self.text}"


class ConfigError(Exception):
    """The config cannot be used; ``problems`` lists everything that is wrong, in the order of the lines."""

    def __init__(self, problems: list[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: problem.line)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def load(path: Path, environ: Mapping[str, str] | None = None, *, without: Collection[str] = ()) -> Config:
    """Read, check and return a config.

    Args:
        path: the YAML file; relative paths in it start at its folder.
        environ: where ``${VAR}`` and ``${VAR:-default}`` come from; the process's environment by default.
        without: queries that are left out, so that the others can be checked.

    Raises:
        ConfigError: lists every problem that was found.
    """
    document = parse(path)
    for name in without:
        document["queries"].pop(name, None)
    reader = YamlReader(path, document, os.environ if environ is None else environ)
    plain = reader.plain(document, ())
    context = {"folder": path.absolute().parent}
    try:
        config = Config.model_validate(plain, context={**context, "file": path.resolve()})
    except ValidationError as error:
        wrong = dict.fromkeys([*explain(error, plain, Config.model_json_schema()), *unseen(plain, context)])
        found = [reader.problem(key, text) for key, text in wrong]
        raise ConfigError(reader.problems + found) from error
    if reader.problems:
        raise ConfigError(reader.problems)
    return config


def problem_at(path: Path, key: Key, text: str) -> Problem:
    """Return a problem of a loaded config that was found later, for example by Spark."""
    return YamlReader(path, parse(path), {}).problem(key, text)


def parse(path: Path) -> CommentedMap:
    """Return the keys of a YAML file, with the lines that they are in.

    Raises:
        ConfigError: it cannot be read, is not YAML, or has no keys.
    """
    try:
        if path.stat().st_size > _FILE_BYTES_MAX:
            raise ConfigError([Problem(path, 1, "", "is larger than 1 MiB; this is not a config")])
        document = YAML(typ="rt").load(path.read_text(encoding="utf-8"))
    except OSError as error:
        text = f"cannot be read ({error.strerror}); check the path"
        raise ConfigError([Problem(path, 1, "", text)]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([Problem(path, 1, "", "is not UTF-8 text; save it as UTF-8")]) from error
    except MarkedYAMLError as error:
        raise ConfigError([_syntax_problem(path, error)]) from error
    except YAMLError as error:
        raise ConfigError([Problem(path, 1, "", f"is not YAML: {error}")]) from error
    except (ValueError, TypeError, ArithmeticError) as error:
        # The reader raises these for a tag that does not fit its value, as in !!int words.
        raise ConfigError([Problem(path, 1, "", f"is not YAML: {error}; remove tags like !!int")]) from error
    if not isinstance(document, CommentedMap):
        text = "holds no sections; begin with gateway: and queries: (see examples/email.yaml)"
        raise ConfigError([Problem(path, 1, "", text)])
    return document


def _syntax_problem(path: Path, error: MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 1
    what = " ".join(str(error.problem or error.context or "syntax error").split())
    return Problem(path, line, "", f"YAML: {what}; check indentation, quotes and colons here")


class YamlReader:
    """Converts the round-trip document to plain data, fills in variables, and finds the lines of keys.

    Args:
        path: of the file, for problems.
        document: what ``parse`` returned.
        environ: the values of variables.
    """

    def __init__(self, path: Path, document: CommentedMap, environ: Mapping[str, str]) -> None:
        self.problems: list[Problem] = []
        self._path = path
        self._document = document
        self._environ = environ

    def plain(self, node: Any, key: Key) -> Any:
        """Return the node without ruamel's own types."""
        if isinstance(node, CommentedMap):
            return {str(name): self.plain(value, (*key, str(name))) for name, value in node.items()}
        if isinstance(node, CommentedSeq):
            return [self.plain(value, (*key, index)) for index, value in enumerate(node)]
        if isinstance(node, str):
            return self._filled(str(node), key)
        if isinstance(node, float):
            return float(node)
        if isinstance(node, int) and not isinstance(node, bool):
            return int(node)
        return node

    def problem(self, key: Key, text: str) -> Problem:
        """Return a problem at the line of ``key``, or of the nearest section above it."""
        query = str(key[1]) if key[:1] == ("queries",) and len(key) > 1 else ""
        return Problem(self._path, self._line(key), ".".join(map(str, key)), text, query)

    def _filled(self, text: str, key: Key) -> str:
        def value(match: re.Match[str]) -> str:
            default: str | None = match["default"]
            found = self._environ.get(match["name"], default)
            if found is None:
                what = f"the environment has no {match['name']}; set it, or write ${{{match['name']}:-a default}}"
                self.problems.append(self.problem(key, what))
                return match[0]
            return found

        return _VARIABLE.sub(value, text)

    def _line(self, key: Key) -> int:
        node: Any = self._document
        line = 0
        for part in key:
            marks = node.lc.data or {} if isinstance(node, CommentedMap | CommentedSeq) else {}
            if part not in marks:
                break
            line = marks[part][0]
            node = node[part]
        return line + 1
