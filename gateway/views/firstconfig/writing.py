"""The text of a first config, and what a user's answers mean in it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from engines.query.sqltext import StatementError, statements
from gateway.config.words.ddl import top_level_columns
from gateway.config.words.fields import INPUT_SUFFIXES
from gateway.config.words.units import duration_s

SOURCES: Final = (
    "a file, a folder, kafka://HOST:PORT/TOPIC, mqtt://HOST/TOPIC, s3://BUCKET/PREFIX, or http://127.0.0.1:PORT/PATH"
)
_NAME_CHARACTERS_MOST: Final = 64
_PLAIN: Final = re.compile(r"[A-Za-z./][A-Za-z0-9_./-]*|\d+(\.\d+)?(ms|s|m|h)")
_NOT_TEXT: Final = ("true", "false", "null", "yes", "no", "on", "off", "y", "n", ".inf", ".nan")
_TEXT: Final = """\
# A first config. README.md and docs/ describe all that can be here; spillway check FILE explains what happens with it.
gateway:
  state_dir: {state}  # what a gateway must not forget; each config has its own
private:
  spark: {{master: "local[1]"}}  # Spark at home; or spark://HOST:PORT
# Without a section "cloud" no VM is rented: all events stay at home. README.md has such a section.
queries:
  {name}:
    source: {source}
    schema: {schema}
    sql: {sql}
    sink: {sink}
    qos: {{latency: {target}}}  # the target for the time from an event's arrival to its result
"""


class AnswerError(ValueError):
    """An answer cannot be used; the message says why, and what to write."""


@dataclass(frozen=True)
class FirstAnswers:
    """What a user said.

    Attributes:
        name: the query's.
        source: the section of the source.
        ddl: the columns of the events.
        sql: the query.
        target: the latency target, with its unit.
        sink: the folder for the results.
    """

    name: str
    source: Mapping[str, Any]
    ddl: str
    sql: str
    target: str
    sink: str


def config_text(said: FirstAnswers, state: str) -> str:
    """Return the text of the config; ``state`` is its state_dir."""
    return _TEXT.format(
        state=_scalar(state),
        name=_scalar(said.name),
        source=_flow(said.source),
        schema=_quoted(said.ddl),
        sql=_block(said.sql.strip()),
        sink=_flow({"type": "file", "path": said.sink}),
        target=_scalar(said.target),
    )


def _flow(section: Mapping[str, Any]) -> str:
    return "{" + ", ".join(f"{key}: {_scalar(value)}" for key, value in section.items()) + "}"


def _scalar(value: Any) -> str:
    """Return a value as YAML; a plain word needs no quotes."""
    if isinstance(value, list):
        return f"[{', '.join(map(_scalar, value))}]"
    if not isinstance(value, str):
        return str(value)
    return value if _PLAIN.fullmatch(value) and value.lower() not in _NOT_TEXT else _quoted(value)


def _quoted(text: str) -> str:
    escaped = {'"': '\\"', "\\": "\\\\"}
    return '"' + "".join(escaped.get(c, c) if c.isprintable() else f"\\U{ord(c):08x}" for c in text) + '"'


def _block(text: str) -> str:
    """Return a text of several lines as YAML, readable where that is possible."""
    lines = text.split("\n")
    if not all(line.isprintable() for line in lines):
        return _quoted(text)
    return "\n".join(["|-", *(f"      {line}" if line else "" for line in lines)])


def source_section(text: str, folder: Path) -> dict[str, Any]:
    """Return the section of a source.

    Args:
        text: what the user wrote; paths start at the working directory.
        folder: of the config, where its paths start.

    Raises:
        AnswerError: it is not one of ``SOURCES``.
    """
    kind, separator, rest = text.partition("://")
    if not separator:
        return {"type": "file", "path": path_from(folder, _existing(text))}
    host, _, place = rest.partition("/")
    if kind in ("kafka", "mqtt") and not (host and place):
        raise AnswerError(f"{text} names no topic; write {kind}://HOST{':PORT' if kind == 'kafka' else ''}/TOPIC")
    match kind:
        case "kafka":
            return {"type": "kafka", "brokers": host, "topics": [place]}
        case "mqtt":
            name, _, port = host.partition(":")
            if port and not port.isdecimal():
                raise AnswerError(f"{text}: {port} is no port; write mqtt://HOST:1883/TOPIC")
            return {"type": "mqtt", "host": name, **({"port": int(port)} if port else {}), "topics": [place]}
        case "s3" if not host:
            raise AnswerError(f"{text} names no bucket; write s3://BUCKET/PREFIX")
        case "s3":
            return {"type": "s3", "bucket": host, **({"prefix": place.rstrip("/")} if place.rstrip("/") else {})}
        case "http":
            return {"type": "http", "listen": host, "path": f"/{place or 'events'}"}
        case _:
            raise AnswerError(f"{kind}:// is no source that can be asked for here; give {SOURCES}")


def _existing(text: str) -> Path:
    path = Path(text).expanduser()
    if not path.exists():
        raise AnswerError(f"{path} does not exist; give {SOURCES}")
    if path.is_file() and not path.name.endswith(INPUT_SUFFIXES):
        raise AnswerError(
            f"{path.name} has an unsupported type; give a file that ends with {', '.join(INPUT_SUFFIXES)}"
        )
    return path


def path_from(folder: Path, path: Path) -> str:
    """Return how a config in ``folder`` names a path that starts at the working directory."""
    return str(path) if path.is_absolute() else os.path.relpath(path.absolute(), folder.absolute())


def query_name(source: Mapping[str, Any]) -> str:
    """Return a name for a query over a source."""
    whole = source.get("path") or source.get("prefix") or source.get("bucket") or source["topics"][0]
    place = str(whole).rstrip("/").rpartition("/")[2]
    stem = place.partition(".")[0] if source["type"] == "file" else place
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-_")[:_NAME_CHARACTERS_MOST] or "first"


def checked_ddl(text: str) -> str:
    """Return columns that can be read.

    Raises:
        AnswerError: they cannot.
    """
    try:
        if top_level_columns(text):
            return text
    except ValueError as error:
        raise AnswerError(str(error)) from error
    raise AnswerError("name at least one column, as in id STRING")


def checked_sql(text: str) -> str:
    """Return a query that can be one, as far as that is known without Spark.

    Raises:
        AnswerError: it cannot.
    """
    try:
        statements(text)
    except StatementError as error:
        raise AnswerError(str(error)) from error
    return text


def checked_target(text: str) -> str:
    """Return a latency target.

    Raises:
        AnswerError: it is not one.
    """
    try:
        if duration_s(text) > 0:
            return text
    except ValueError as error:
        raise AnswerError(str(error)) from error
    raise AnswerError("the target must be longer than zero, as in 2s")
