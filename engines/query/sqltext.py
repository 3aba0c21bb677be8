"""Removes a query's layout from its text: blanks, comments, and letter case outside quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
_CAPITALS: Final = str.maketrans({chr(letter): chr(letter + 32) for letter in range(ord("A"), ord("Z") + 1)})


def sql_tokens(sql: str) -> Iterator[str]:
    """Yield the tokens of a text: two texts with the same tokens are the same query.

    A hint (``/*+ … */``) counts. Text that cannot be split (a quote that is never closed) is yielded unchanged.
    """
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
                    yield sql[found.start() :]
                    return
                at = end
            case "verbatim":
                yield found[0]
            case _:
                yield found[0].translate(_CAPITALS)


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
