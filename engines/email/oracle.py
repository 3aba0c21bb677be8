"""The correct answers of the e-mail benchmark in plain Python: no Spark, no SQL, no code shared with the queries."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from engines.email.mailbox import Mail

WINDOW_MAILS = 100


class MailAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer of Q1 to Q4 for one mail; the columns of ``EMAIL_SQL``'s result."""

    message_id: str
    sender: str
    recipients: tuple[str, ...]
    subject: str
    characters: int
    words: int
    paragraphs: int
    body_md5: str


class WindowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of Q5 for one full window; ``window`` counts from 0."""

    window: int
    mails: int
    characters: int
    words: int
    paragraphs: int
    mean_characters: float


def answer(mail: Mail) -> MailAnswer | None:
    """Return the answer of Q1 to Q4 for ``mail``, or None where Q1 drops it."""
    if not mail.sender.endswith("@enron.com"):
        return None
    text = mail.body
    for number, name in enumerate(("Kenneth Lay", "Jeffrey Skilling", "Andrew Fastow"), start=1):
        text = text.replace(name, f"Person{number}")
    text = text.lower()
    words = [word for word in text.split(" ") if len(word) > 1]
    return MailAnswer(
        message_id=mail.message_id,
        sender=mail.sender,
        recipients=tuple(address for address in mail.to if "enron.com" in address),
        subject=f"{most_frequent(words)} {mail.subject}",
        characters=len(text),
        words=len(words),
        paragraphs=paragraphs(text),
        body_md5=hashlib.md5(text.encode(), usedforsecurity=False).hexdigest(),
    )


def most_frequent(words: Iterable[str]) -> str:
    """Return the most frequent word that occurs at least twice, of several the smallest; NONE if there is none."""
    counts = Counter(words)
    most = max(counts.values(), default=0)
    return min(word for word, count in counts.items() if count == most) if most > 1 else "NONE"


def paragraphs(text: str) -> int:
    """Return the number of runs of lines that are not blank; the blanks are the six of ASCII."""
    found, before_blank = 0, True
    for line in text.split("\n"):
        blank = not line.strip(" \t\n\r\v\f")
        found += before_blank and not blank
        before_blank = blank
    return found


def windows(answers: Iterable[MailAnswer]) -> Iterator[WindowAnswer]:
    """Yield Q5's row for each ``WINDOW_MAILS`` answers in order; a window that is not full gives no row."""
    held: list[MailAnswer] = []
    number = 0
    for one in answers:
        held.append(one)
        if len(held) == WINDOW_MAILS:
            characters = sum(each.characters for each in held)
            yield WindowAnswer(
                window=number,
                mails=WINDOW_MAILS,
                characters=characters,
                words=sum(each.words for each in held),
                paragraphs=sum(each.paragraphs for each in held),
                mean_characters=characters / WINDOW_MAILS,
            )
            number, held = number + 1, []
