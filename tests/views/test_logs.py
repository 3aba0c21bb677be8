from __future__ import annotations

import logging

from gateway.views.logs import Seldom, begin_logging


def record(line: int) -> logging.LogRecord:
    return logging.LogRecord("aiokafka.client", logging.ERROR, "client.py", line, "no broker", (), None)


def test_the_same_place_speaks_once_in_a_while_and_others_are_not_held_back() -> None:
    now_s = 100.0
    seldom = Seldom(lambda: now_s)
    assert seldom.filter(record(1))
    assert not seldom.filter(record(1))
    assert seldom.filter(record(2))
    now_s += 31.0
    assert seldom.filter(record(1))


def test_handlers_of_whoever_runs_a_gateway_in_its_own_process_stay_as_they_are() -> None:
    handlers = logging.getLogger().handlers
    before = [(handler, list(handler.filters)) for handler in handlers]
    assert before, "pytest has its own"
    begin_logging()
    assert [(handler, list(handler.filters)) for handler in handlers] == before
