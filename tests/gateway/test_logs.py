from __future__ import annotations

import logging

from gateway.logs import Seldom


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
