"""Shortens an error to one line that can be sent over a link."""

from __future__ import annotations

import re

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from engines.query.mistakes import not_streaming

_MAX_CHARACTERS = 500
_TRACE_LINE = re.compile(r"^\s*(File \"|at |Traceback|~*\^|\.\.\. \d+ more|Caused by: )")
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Warning)\b.*")
_JAVA_CLASS = re.compile(r"^(?:\w+\.)+\w+(?:Error|Exception): (?=\[[A-Z])")


def why(error: BaseException) -> str:
    """Return the cause of an error as one bounded line: a UDF's own exception, or Spark's condition and text."""
    if said := not_streaming(error):
        return said
    text = str(error)
    if isinstance(error, Py4JJavaError):
        text = str(error.java_exception)
    return _cause(text, "" if isinstance(error, PySparkException | Py4JJavaError) else f"{type(error).__name__}: ")


def why_in(text: str) -> str:
    """Return the same for an exception in Java's format, without its class if Spark's condition follows."""
    return _cause(_JAVA_CLASS.sub("", text), "")


def _cause(text: str, named: str) -> str:
    raised = [line.strip() for line in text.splitlines() if _RAISED.match(line.strip())]
    if "Traceback (most recent call last)" in text and raised:
        return _short(raised[-1])
    plain = next((line for line in text.splitlines() if line.strip() and not _TRACE_LINE.match(line)), text)
    return _short(f"{named}{plain}")


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[: _MAX_CHARACTERS - 1]}…"
