from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from engines.email.generator import generate_mail
from engines.email.oracle import MailAnswer, answer
from gateway.demo.load import looped_id
from gateway.demo.verify import ExpectedResults, SinkVerdict, verify

BASE = list(generate_mail(200, seed=4))
EXPECTED = ExpectedResults(BASE)
EVENTS = 650


def right_rows() -> list[MailAnswer]:
    """The answers to ``EVENTS`` events of ``BASE``, replayed several times, computed in the slow and obvious way."""
    rows = []
    for number in range(EVENTS):
        mail = BASE[number % len(BASE)]
        one = answer(msgspec.structs.replace(mail, message_id=looped_id(mail.message_id, number // len(BASE))))
        if one:
            rows.append(one)
    return rows


def write(folder: Path, parts: list[tuple[str, list[MailAnswer]]]) -> None:
    for number, (mark, rows) in enumerate(parts):
        (folder / f"{number:010d}-{0:012d}-{9:012d}{mark}.jsonl").write_bytes(msgspec.json.Encoder().encode_lines(rows))


def judged(folder: Path, parts: list[tuple[str, list[MailAnswer]]]) -> SinkVerdict:
    write(folder, parts)
    return verify(folder, EXPECTED, EVENTS)


def test_all_rows_in_order_are_clean(tmp_path: Path) -> None:
    rows = right_rows()
    (tmp_path / "manifest.json").write_text("{}")
    (tmp_path / ".0000000009-000000000000-000000000009.jsonl.tmp").write_text("half a ro")
    verdict = judged(tmp_path, [("", rows[:100]), ("", rows[100:])])
    assert verdict == SinkVerdict(results=len(rows), lost=0, duplicated=0, order_violations=0, late=0)
    assert verdict.clean


def test_each_missing_row_is_lost(tmp_path: Path) -> None:
    rows = right_rows()
    verdict = judged(tmp_path, [("", rows[:50] + rows[53:])])
    assert (verdict.results, verdict.lost, verdict.duplicated) == (len(rows) - 3, 3, 0)
    assert not verdict.clean


def test_a_repeated_row_is_a_duplicate_and_out_of_order(tmp_path: Path) -> None:
    rows = right_rows()
    verdict = judged(tmp_path, [("", rows), ("", rows[:1])])
    assert (verdict.lost, verdict.duplicated, verdict.order_violations) == (0, 1, 1)


def test_an_inversion_counts_only_where_it_is_not_marked_late(tmp_path: Path) -> None:
    rows = right_rows()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    marked = judged(tmp_path / "a", [("", rows[:10]), ("", rows[20:]), (".late", rows[10:20])])
    unmarked = judged(tmp_path / "b", [("", rows[:10]), ("", rows[20:]), ("", rows[10:20])])
    assert (marked.order_violations, marked.late, marked.clean) == (0, 10, True)
    assert (unmarked.order_violations, unmarked.late, unmarked.clean) == (10, 0, False)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda row: msgspec.structs.replace(row, body_md5="0" * 32),
        lambda row: msgspec.structs.replace(row, words=row.words + 1),
        lambda row: msgspec.structs.replace(row, recipients=("x@enron.com",)),
        lambda row: msgspec.structs.replace(row, message_id=row.message_id + "#03"),
        lambda row: msgspec.structs.replace(row, message_id=row.message_id + "#4"),
        lambda row: msgspec.structs.replace(row, message_id="<nobody>"),
    ],
)
def test_a_wrong_row_is_one_lost_and_one_too_many(tmp_path: Path, spoil: Callable[[MailAnswer], MailAnswer]) -> None:
    rows = right_rows()
    verdict = judged(tmp_path, [("", [spoil(rows[0]), *rows[1:]])])
    assert (verdict.results, verdict.lost, verdict.duplicated) == (len(rows), 1, 1)


def test_a_line_that_is_no_row_is_one_too_many(tmp_path: Path) -> None:
    write(tmp_path, [("", right_rows())])
    (tmp_path / f"{7:010d}-{0:012d}-{9:012d}.jsonl").write_bytes(b'{"message_id": "<half\n\xff\n')
    assert verify(tmp_path, EXPECTED, EVENTS).duplicated == 2


def test_a_row_that_the_query_should_have_dropped_is_one_too_many(tmp_path: Path) -> None:
    dropped = next(mail for mail in BASE if answer(mail) is None)
    rows = right_rows()
    stray = msgspec.structs.replace(rows[0], message_id=dropped.message_id)
    verdict = judged(tmp_path, [("", [*rows, stray])])
    assert (verdict.lost, verdict.duplicated) == (0, 1)


def test_an_empty_folder_has_lost_everything(tmp_path: Path) -> None:
    assert verify(tmp_path, EXPECTED, EVENTS).lost == len(right_rows())


def test_mails_with_one_id_cannot_be_told_apart() -> None:
    with pytest.raises(ValueError, match="1 mails share an id"):
        ExpectedResults([*BASE, BASE[0]])
