"""What the gateway asks of the program that reads databases, and what that answers."""

from __future__ import annotations

import msgspec


class DatabaseTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a database.

    Attributes:
        name: of the view; its rows are written to a file of this name.
        url: of the database, for JDBC.
        query: an SQL query in the words of the database; or
        table: the name of a table or a view there.
        user: who logs in; empty: the database asks for no login.
        password: of that user.
        driver: the class of the JDBC driver; empty: Java finds it by the URL.
    """

    name: str
    url: str
    query: str = ""
    table: str = ""
    user: str = ""
    password: str = ""
    driver: str = ""


class ReadTables(msgspec.Struct, frozen=True, kw_only=True):
    """The request, as JSON on the program's input.

    Attributes:
        tables: what to read.
        folder: where to write it, one Parquet file for each table, and the answer.
        lock: a file; programs that have the same one wait for each other.
        conf: settings of Spark; among them where the JDBC drivers are.
        within_s: how long reading may take, without the wait for other programs.
    """

    tables: tuple[DatabaseTable, ...]
    folder: str
    lock: str
    conf: dict[str, str]
    within_s: float


class TablesRead(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, as JSON in the file ``ANSWER``.

    Attributes:
        failed: the table that could not be read; empty if that is not known.
        reason: why not; empty if all tables were read.
    """

    failed: str = ""
    reason: str = ""


ANSWER = "answer.json"
