from __future__ import annotations

import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.email.mailbox import MAIL_LIMITS, MAX_REASONS, Mail, MailLimits, MailReport, parse_mail, read_mail

FIRST = b"""Message-ID: <1@x>
Date: Thu, 31 Aug 2000 17:26:00 -0700 (PDT)
From: a.b@enron.com
To: c@enron.com, "Doe, Jane" <jane@other.example>,
\td@enron.com
Cc: e@enron.com
Bcc: e@enron.com
Subject: a subject
 over two lines
X-Folder: \\Somebody\\Inbox

>From the top:
>>From below, and a From in the middle

From here on this is still the body.
last
"""
SEPARATOR = b"From MAILER-DAEMON Mon Apr 18 14:17:48 2022\n"


def mbox(*messages: bytes) -> bytes:
    return b"".join(SEPARATOR + message + b"\n" for message in messages)


def plain(message_id: str, body: bytes = b"hello\n") -> bytes:
    head = f"Message-ID: <{message_id}>\nDate: Fri, 1 Sep 2000 10:00:00 +0000\nFrom: a@enron.com\nTo: b@enron.com\n\n"
    return head.encode() + body


def read(path: Path, limits: MailLimits = MAIL_LIMITS) -> tuple[list[Mail], MailReport]:
    report = MailReport()
    return list(read_mail(path, report, limits)), report


def test_headers_are_unfolded_and_the_body_unquoted(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(mbox(FIRST, plain("2@x")))
    mails, report = read(path)
    assert mails[0] == Mail(
        message_id="<1@x>",
        sent=datetime(2000, 9, 1, 0, 26, tzinfo=UTC),
        sender="a.b@enron.com",
        to=["c@enron.com", "jane@other.example", "d@enron.com"],
        cc=["e@enron.com"],
        bcc=["e@enron.com"],
        subject="a subject over two lines",
        body="From the top:\n>From below, and a From in the middle\n\nFrom here on this is still the body.\nlast\n",
    )
    assert [mail.message_id for mail in mails] == ["<1@x>", "<2@x>"]
    assert (report.mails, report.malformed) == (2, 0)


def test_gzip_is_known_by_its_bytes_not_its_name(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(gzip.compress(mbox(plain("1@x"), plain("2@x"))))
    assert len(read(path)[0]) == 2


def test_windows_line_ends_become_line_feeds(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(mbox(plain("1@x", b"one\n\ntwo\n"), plain("2@x")).replace(b"\n", b"\r\n"))
    mails, _ = read(path)
    assert [mail.body for mail in mails] == ["one\n\ntwo\n", "hello\n"]


@pytest.mark.parametrize(
    ("body", "charset", "text"),
    [
        (b"caf\xe9\n", "us-ascii", "café\n"),
        (b"caf\xc3\xa9\n", "utf-8", "café\n"),
        (b"caf\xe9\n", "no-such-charset", "café\n"),
        (b"\xff\xfe\x00\n", "utf-8", "ÿþ\x00\n"),
    ],
)
def test_bytes_that_do_not_match_their_charset_are_read(body: bytes, charset: str, text: str) -> None:
    head = plain("1@x", b"").replace(b"\n\n", f"\nContent-Type: text/plain; charset={charset}\n\n".encode())
    assert parse_mail(head + body).body == text


def test_encoded_words_and_stray_bytes_in_headers_are_decoded() -> None:
    head = plain("1@x", b"").replace(b"\n\n", b"\nSubject: =?iso-8859-1?q?caf=E9?= today\n\n")
    assert parse_mail(head).subject == "café today"
    stray = parse_mail(plain("1@x", b"").replace(b"\n\n", b"\nSubject: caf\xe9 today\n\n"))
    assert stray.subject.startswith("caf")
    stray.subject.encode()


def test_the_plain_text_of_a_multipart_mail_is_its_body() -> None:
    body = (
        b"--b\nContent-Type: text/html\n\n<p>no</p>\n--b\nContent-Type: text/plain\n"
        b"Content-Transfer-Encoding: base64\n\naGkgdGhlcmU=\n--b--\n"
    )
    head = plain("1@x", b"").replace(b"\n\n", b"\nContent-Type: multipart/alternative; boundary=b\n\n")
    assert parse_mail(head + body).body == "hi there"


@pytest.mark.parametrize(
    ("to", "addresses"),
    [
        (b"undisclosed-recipients:;", []),
        (b"a@enron.com,, b@enron.com,", ["a@enron.com", "b@enron.com"]),
        (b"'x@enron.com' <x@enron.com>", ["x@enron.com"]),
        (b"", []),
    ],
)
def test_odd_recipient_lists(to: bytes, addresses: list[str]) -> None:
    assert parse_mail(plain("1@x").replace(b"To: b@enron.com", b"To: " + to)).to == addresses


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (plain("1@x").replace(b"Message-ID: <1@x>\n", b""), "no Message-ID"),
        (plain("1@x").replace(b"a@enron.com", b"nobody"), "no address in From"),
        (plain("1@x").replace(b"1 Sep", b"99 Sep"), "unreadable Date"),
        (b"", "no Message-ID"),
    ],
)
def test_a_malformed_mail_is_counted_with_its_place_and_the_rest_is_read(
    tmp_path: Path, bad: bytes, reason: str
) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(mbox(plain("1@x"), bad, plain("2@x")))
    mails, report = read(path)
    assert [mail.message_id for mail in mails] == ["<1@x>", "<2@x>"]
    assert report.malformed == 1
    assert report.reasons[0].startswith("mail.mbox:9: ")
    assert reason in report.reasons[0]


def test_text_before_the_first_separator_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(b"this is\n\nno mailbox\n\n" + mbox(plain("1@x")))
    mails, report = read(path)
    assert len(mails) == 1
    assert report.reasons == ["mail.mbox:1: text before the first separator line"]


def test_a_mail_too_large_to_hold_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(mbox(plain("1@x"), plain("2@x", b"y" * 5000 + b"\n"), plain("3@x", b"z" * 500 + b"\n")))
    mails, report = read(path, MailLimits(mail_bytes=1000, line_bytes=64))
    assert [(mail.message_id, len(mail.body)) for mail in mails] == [("<1@x>", 6), ("<3@x>", 501)]
    assert report.malformed == 1
    assert "more than 1000" in report.reasons[0]


def test_a_cut_gzip_file_gives_what_was_whole(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox.gz"
    whole = gzip.compress(mbox(*(plain(f"{number}@x", bytes(range(32, 127)) * 50) for number in range(200))))
    path.write_bytes(whole[: len(whole) - 40])
    mails, report = read(path)
    assert 0 < len(mails) <= 200
    assert any("damaged gzip stream" in reason for reason in report.reasons)


def test_a_folder_tree_is_read_in_order_of_path(tmp_path: Path) -> None:
    for name in ("b/inbox/2.", "a/cur/1:2,S", "a/tmp/9", "a/new/3", ".Sent/cur/4", "b/.hidden"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(plain(f"{path.name[:1]}@x"))
    (tmp_path / "a" / "empty").write_bytes(b"")
    mails, report = read(tmp_path)
    assert [mail.message_id for mail in mails] == ["<4@x>", "<1@x>", "<3@x>", "<2@x>"]
    assert report.reasons == ["a/empty: no Message-ID"]


def test_reasons_are_bounded(tmp_path: Path) -> None:
    path = tmp_path / "mail.mbox"
    path.write_bytes(mbox(*[b"X: y\n\n"] * (MAX_REASONS + 50)))
    report = read(path)[1]
    assert (report.malformed, len(report.reasons)) == (MAX_REASONS + 50, MAX_REASONS)


def test_nothing_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none.mbox")


@given(st.binary(max_size=400), st.binary(max_size=60))
def test_any_bytes_are_a_mail_or_a_reason_never_a_crash(body: bytes, header: bytes) -> None:
    message = plain("1@x", b"").replace(b"\n\n", b"\nSubject: " + header + b"\n\n") + body
    try:
        mail = parse_mail(message)
    except ValueError:
        return
    mail.subject.encode()
    mail.body.encode()
