"""New dead letters are counted, and logged at most once a minute."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from gateway.journal.deadletters import DeadLetter, DeadLetterFile, dead_letter
from gateway.query.flow.letters import LetterLog
from gateway.query.flow.statistics import Tally
from gateway.views.recorder import tallies_texts
from tests.support.gateway_doubles import ManualClock


def letter(seq: int) -> DeadLetter:
    return dead_letter(f"row {seq} is bad", b"{}", 0.0, seq=seq)


def test_letters_are_logged_at_most_once_a_minute_with_count_place_and_first_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, tally, path = ManualClock(), Tally(), tmp_path / "dead.jsonl"
    letters = DeadLetterFile(path, on_added=LetterLog("q", path, tally, clock).added)
    with caplog.at_level(logging.WARNING, "gateway.query.flow.letters"):
        for seq in range(5):
            letters.add([letter(seq), letter(seq + 100)])
            clock.advance(10.0)
        letters.add([letter(0)])  # is in
        clock.advance(10.0)
        letters.add([letter(50)])
    assert [record.getMessage() for record in caplog.records] == [
        f"query q: 2 more dead letters in {path}; the first reason: row 0 is bad",
        f"query q: 9 more dead letters in {path}; the first reason: row 1 is bad",
    ]
    assert tally.dead_letters == 11
    assert "11 dead letters" in tallies_texts({"q": tally})[0]
