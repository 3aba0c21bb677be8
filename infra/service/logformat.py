"""How a record of a log is written: as text on a terminal, as a JSON object in a line of its own elsewhere.

Records come from ``logging``; ``structlog`` formats them. The fields are ``time`` (UTC), ``level``, ``logger`` and
``message``, with ``query`` and ``vm`` if the message names one, and ``exception`` with a traceback.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final, TextIO
from urllib.parse import quote

import structlog
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict, Processor

HIDDEN: Final = "***"
_SECRET_CHARACTERS_LEAST: Final = 6
"""A shorter secret is part of too many words to be looked for."""

_NAME: Final = r"[\w-]+(?:\.[\w-]+)*"
_QUERY: Final = re.compile(rf"\b[Qq]uery ({_NAME})|^({_NAME}):")
_VM: Final = re.compile(r"\bvm-\w+(?:-\w+)*")
_FIELDS: Final = ("time", "level", "logger", "message", "query", "vm", "exception")
_SHOWN: Final = ("time", "level", "message", "exception")
"""On a terminal; the message names query and VM."""

_secrets: set[str] = set()
_queries: set[str] = set()


def hide(secrets: Iterable[str]) -> None:
    """Replace these secrets by ``HIDDEN`` in every record from now on, as they are and as parts of a URL."""
    for secret in secrets:
        if len(secret) >= _SECRET_CHARACTERS_LEAST:
            _secrets.update((secret, quote(secret, safe="")))


def know_queries(names: Iterable[str]) -> None:
    """Give each record that names one of these queries its name as a field from now on."""
    _queries.update(names)


def without_secrets(text: str) -> str:
    """Return a text with each secret replaced by ``HIDDEN``."""
    for secret in sorted(_secrets, key=len, reverse=True):  # one may be part of another
        text = text.replace(secret, HIDDEN)
    return text


def formatter_for(stream: TextIO | None) -> logging.Formatter:
    """Return the formatter for a stream, or without one for a file."""
    if stream is not None and stream.isatty():
        return text_formatter()
    return _formatter(_as_json)


def text_formatter() -> logging.Formatter:
    """Return the formatter for a terminal."""
    console = structlog.dev.ConsoleRenderer(
        event_key="message", timestamp_key="time", pad_event_to=0, pad_level=False, sort_keys=False
    )

    def render(_: object, __: str, event: EventDict) -> str:
        return console(None, "", {field: event[field] for field in _SHOWN if field in event})

    return _formatter(render)


def _formatter(render: Processor) -> logging.Formatter:
    return ProcessorFormatter(
        foreign_pre_chain=[structlog.stdlib.add_log_level, structlog.stdlib.add_logger_name, _with_time],
        processors=[structlog.processors.format_exc_info, _described, render],
    )


def _with_time(_: object, __: str, event: EventDict) -> EventDict:
    at = datetime.fromtimestamp(event["_record"].created, UTC)
    event["time"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return event


def _described(_: object, __: str, event: EventDict) -> EventDict:
    """Return the fields in their order, without secrets."""
    message = event["message"] = str(event.pop("event"))
    event["query"] = _only({name for names in _QUERY.findall(message) for name in names} & _queries)
    event["vm"] = _only(set(_VM.findall(message)))
    return {field: without_secrets(event[field]) for field in _FIELDS if event.get(field)}


def _only(names: set[str]) -> str:
    return names.pop() if len(names) == 1 else ""


def _as_json(_: object, __: str, event: EventDict) -> str:
    return json.dumps(event, ensure_ascii=False)
