"""The daemon's logging, which stays readable even if another system is down for an hour."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from logging.handlers import RotatingFileHandler
from typing import Final

from pydantic import BaseModel, SecretStr

from gateway.config.models import Config
from gateway.config.sites import GatewayConfig
from infra.service.logformat import formatter_for, hide, know_queries

# They log each try, several a second while a broker is down; we log ourselves what that means for a query.
_TALKATIVE = ("aiokafka", "botocore", "boto3", "urllib3", "aiohttp", "aiomqtt", "paho")
_SELDOM_S = 30.0


class Seldom(logging.Filter):
    """Lets each place in the code log once in ``_SELDOM_S``.

    Args:
        now: monotonic time in s.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._last_s: dict[tuple[str, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """See ``logging.Filter``; a program has few such places, so little is remembered."""
        place = (record.pathname, record.lineno)
        now_s = self._now()
        if now_s - self._last_s.get(place, -_SELDOM_S) < _SELDOM_S:
            return False
        self._last_s[place] = now_s
        return True


OLDER_FILES: Final = 3
"""So many files of the log are kept besides the newest; their names end in .1 to .3."""


def begin_logging() -> None:
    """Log to stderr: our own messages from INFO on, and the libraries' warnings, repeated ones seldom."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter_for(handler.stream))
    handler.addFilter(_filter())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


def acquaint(config: Config) -> None:
    """Let the log know a config: its queries, which become fields of records, and its secrets, which it hides."""
    know_queries(config.queries)
    hide(_secrets(config))


def _secrets(value: object) -> Iterator[str]:
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _secrets(getattr(value, field))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _secrets(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _secrets(each)


@contextmanager
def kept_log(config: GatewayConfig) -> Iterator[None]:
    """Write the log to its file, too; a disk error later on costs lines of the log, and nothing else.

    Args:
        config: with the file; its state_dir is this gateway's.

    Raises:
        OSError: the file cannot be written.
    """
    path = config.log_file
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(
        path, maxBytes=config.log.rotate_bytes, backupCount=OLDER_FILES, encoding="utf-8", errors="backslashreplace"
    )
    handler.setFormatter(formatter_for(None))
    handler.addFilter(_filter())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _filter() -> Callable[[logging.LogRecord], bool]:
    seldom = Seldom()

    def quiet(record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in _TALKATIVE:
            return True
        return record.levelno >= logging.WARNING and seldom.filter(record)

    return quiet


def in_a_sentence(error: Exception) -> str:
    """Return the error as a sentence, with its path if it has one."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; check that this user may read and write there"
    return str(error) or type(error).__name__
