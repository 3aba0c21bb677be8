"""Reads a query's text without Spark: its tokens, without the layout, and its statements."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

# The same rules as Spark's lexer. A line comment continues after a backslash at its end. A backslash escapes a quote in
# a string; a second backtick escapes one in a name. A raw string has no escapes. ${x} is replaced before parsing.
_TOKEN: Final = re.compile(
    r"""
    (?P<blank>\s+)
  | (?P<line_comment>--(?:\\\n|[^\r\n])*)
  | (?P<comment>/\*(?!\+))
  | (?P<verbatim>
        (?<!\w)[rR](?:'[^']*'|"[^"]*")
      | '(?:\\.|[^'\\])*' | "(?:\\.|[^"\\])*" | `(?:``|[^`])*` | \$\{[^}]*\}
    )
  | (?P<number>(?<!\w)\d+(?:\.\d*)?(?:[eE][+-]?\d+)?\w* | (?<![\w.`])\.\d+(?:[eE][+-]?\d+)?\w*)
  | (?P<word>\w+)
  | (?P<operator>/\*\+ | \*/ | <=> | >>> | [<>!=]= | <> | !< | !> | <<|>>|\|\||\||->|=>|::|:=|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_MARK: Final = re.compile(r"/\*|\*/")
EVENTS: Final = "events"
_QUERIES: Final = frozenset({"select", "with", "values", "from", "table", "("})
_ALLOWED: Final = "only CREATE TEMPORARY VIEW name AS SELECT … and, at the end, one SELECT are allowed"
_CAPITALS: Final = str.maketrans({chr(letter): chr(letter + 32) for letter in range(ord("A"), ord("Z") + 1)})


def sql_tokens(sql: str) -> Iterator[str]:
    """Yield the tokens of a text: two texts with the same tokens are the same query.

    A hint (``/*+ … */``) counts. Text that cannot be split (a quote that is never closed) is yielded unchanged.
    """
    yield from (token for _, token in _tokens(sql))


def _tokens(sql: str) -> Iterator[tuple[int, str]]:
    """Yield where each token begins, and the token."""
    at = 0
    while at < len(sql):
        found = _TOKEN.match(sql, at)
        assert found is not None, "the last alternative takes any character"
        at = found.end()
        match found.lastgroup:
            case "blank" | "line_comment":
                continue
            case "comment":
                end = _end_of_comment(sql, at)
                if end is None:
                    yield found.start(), sql[found.start() :]
                    return
                at = end
            case "verbatim":
                yield found.start(), found[0]
            case _:
                yield found.start(), found[0].translate(_CAPITALS)


class StatementError(ValueError):
    """A query's text has a statement that is not allowed; the message says which, and what to do."""


@dataclass(frozen=True)
class Statements:
    """The statements of a query's text.

    Attributes:
        views: the name of each view that is created, in order, and the statement that creates it in a session, whether
            or not the view is there.
        query: the last statement, which gives the results.
    """

    views: tuple[tuple[str, str], ...]
    query: str


def statements(sql: str) -> Statements:
    """Return the statements of a text: any number of temporary views, then one query.

    Raises:
        StatementError: there is another statement, or a view has the name of another one.
    """
    *before, last = _split(sql) or [_Statement(1, "", ())]
    views = [each.as_view() for each in before]
    last.check_query(alone=not before)
    names = [EVENTS]
    for number, (name, _) in enumerate(views, 1):
        if name.lower() == EVENTS:
            raise StatementError(f"statement {number} creates the view {name}, but that has the events: rename it")
        if name.lower() in names:
            raise StatementError(f"statement {number} creates the view {name} a second time: rename it")
        names.append(name.lower())
    return Statements(tuple(views), last.text)


@dataclass(frozen=True)
class _Statement:
    """One statement: its number from 1, its text, and its tokens, each with where it begins in the text."""

    number: int
    text: str
    tokens: Sequence[tuple[int, str]]

    @property
    def words(self) -> list[str]:
        return [token for _, token in self.tokens]

    def as_view(self) -> tuple[str, str]:
        """Return the name of the view that it creates, and the statement that replaces it."""
        words = self.words
        if words[0] in _QUERIES:
            raise StatementError(
                f"statement {self.number} is a query, but only the last statement gives the results: write CREATE "
                "TEMPORARY VIEW name AS before it, or remove it"
            )
        if words[0] != "create":
            raise StatementError(f"statement {self.number} begins with {words[0].upper()}: {_ALLOWED}")
        at = 3 if words[1:3] == ["or", "replace"] else 1
        if words[at : at + 2] not in (["temporary", "view"], ["temp", "view"]):
            raise StatementError(
                f"statement {self.number}: a view is the query's own: write CREATE TEMPORARY VIEW name AS SELECT …"
            )
        return self._view_at(at + 2)

    def _view_at(self, at: int) -> tuple[str, str]:
        words = self.words
        name = _name(words[at]) if at < len(words) else ""
        body = _after_as(words[at + 1 :])
        if not name or body not in _QUERIES or words[at + 1] == ".":
            raise StatementError(
                f"statement {self.number}: write CREATE TEMPORARY VIEW name AS SELECT …, with a name without dots"
            )
        return name, f"CREATE OR REPLACE TEMPORARY VIEW {self.text[self.tokens[at][0] :]}"

    def check_query(self, *, alone: bool) -> None:
        words = self.words
        which = "it" if alone else f"statement {self.number}"
        if not words:
            raise StatementError("there is no statement: write a SELECT over the view events")
        if words[0] == "create":
            self.as_view()
            raise StatementError(f"{which} creates a view and is the last one: add the SELECT that gives the results")
        if words[0] not in _QUERIES:
            raise StatementError(f"{which} begins with {words[0].upper()}: {_ALLOWED}")
        if any(pair in (("insert", "into"), ("insert", "overwrite")) for pair in pairwise(words)):
            raise StatementError(f"{which} has an INSERT: {_ALLOWED}, and the results go to the sink")


def _split(sql: str) -> list[_Statement]:
    """Return the statements that are separated by semicolons; those without any token do not count."""
    found: list[_Statement] = []
    begin, tokens = 0, list[tuple[int, str]]()
    for at, word in [*_tokens(sql), (len(sql), ";")]:
        if word != ";":
            tokens.append((at - begin, word))
            continue
        if tokens:
            found.append(_Statement(len(found) + 1, sql[begin:at], tokens))
        begin, tokens = at + 1, []
    return found


def _name(token: str) -> str:
    """Return the name that a token is; empty if it is none."""
    if token.startswith("`"):
        return token[1:-1].replace("``", "`")
    return token if re.fullmatch(r"\w+", token) else ""


def _after_as(words: Sequence[str]) -> str:
    """Return the word after the first AS outside brackets; empty if there is none."""
    depth = 0
    for word, following in pairwise(words):
        depth += (word == "(") - (word == ")")
        if word == "as" and depth == 0:
            return following
    return ""


def ddl_tokens(ddl: str) -> Iterator[str]:
    """Yield the tokens of a schema; column names keep their letter case, which counts in events."""
    yield from (part for part in re.split(r"\s+|([<>(),:])|(`(?:``|[^`])*`|'(?:\\.|[^'\\])*')", ddl) if part)


def _end_of_comment(sql: str, at: int) -> int | None:
    """Return where the comment ends that begins before ``at``; comments may be nested."""
    depth = 1
    for mark in _COMMENT_MARK.finditer(sql, at):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return mark.end()
    return None
