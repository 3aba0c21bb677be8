"""The config's section about a static table that a query reads besides its events."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gateway.config.connectors.security import LoginConfig
from gateway.config.words.ddl import top_level_columns
from gateway.config.words.fields import AnyPath, Duration, Finding, Section, refuse
from infra.messages import StaticTable

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OF_EVENTS: Final = "events"
_DATABASE_REFRESH_S: Final = 60.0
"""A database is read with a Spark of its own, which starts anew each time."""


def _is_view_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'"{name}" is not valid; a table is a view: give up to 64 letters, digits and underscores')
    if name.lower() == _OF_EVENTS:
        raise ValueError(f'"{name}" is the view of the stream; give the table another name')
    return name


TableName = Annotated[str, AfterValidator(_is_view_name)]


class TableConfig(Section):
    """A file, a folder or a table of a database that a query reads as a view; see docs/tables.md.

    Attributes:
        format: the format of the files; ``jdbc``: a database.
        path: a file, or a folder whose files are read together.
        schema_ddl: the columns of CSV and JSON files; Parquet files and databases name theirs.
        header: whether the first line of each CSV file has the names of the columns.
        url: the URL of the database, for JDBC.
        query: what to select, in the SQL of the database; either this or ``table``.
        table: the name of a table or a view there.
        login: user and password of the database.
        driver: the class of the JDBC driver. Default: Java finds it by the URL.
        refresh_s: how often to look for new content. Default: only when the query is opened.
    """

    format: Literal["csv", "parquet", "json", "jdbc"]
    path: AnyPath | None = Field(default=None, examples=["customers.csv"])
    schema_ddl: str | None = Field(default=None, alias="schema", min_length=1, examples=["customer INT, name STRING"])
    header: bool = False
    url: Annotated[str, Field(pattern="^jdbc:[A-Za-z0-9]+:.+")] | None = Field(
        default=None, examples=["jdbc:postgresql://db/shop"]
    )
    query: str | None = Field(default=None, min_length=1, examples=["SELECT product, price FROM prices WHERE valid"])
    table: str | None = Field(default=None, min_length=1, examples=["customers"])
    login: LoginConfig | None = None
    driver: str | None = Field(default=None, min_length=1, examples=["org.postgresql.Driver"])
    refresh_s: Annotated[Duration, Field(ge=1)] | None = Field(default=None, alias="refresh", examples=["10m"])

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = self._database_findings() if self.format == "jdbc" else self._file_findings()
        if self.format != "csv" and self.header:
            findings.append(Finding(key=("header",), what="is for csv; remove it"))
        refuse(findings)
        return self

    def _database_findings(self) -> list[Finding]:
        findings = []
        if self.url is None:
            findings.append(Finding(key=("url",), what="is missing; add it, as in jdbc:postgresql://host/database"))
        if (self.query is None) == (self.table is None):
            findings.append(Finding(key=("query",), what="give either query or table"))
        if self.path is not None:
            findings.append(Finding(key=("path",), what="is for files; remove it"))
        if self.schema_ddl is not None:
            findings.append(Finding(key=("schema",), what="a database names its columns; remove schema"))
        if self.refresh_s is not None and self.refresh_s < _DATABASE_REFRESH_S:
            findings.append(
                Finding(
                    key=("refresh",),
                    what="is too often: each time a Spark starts to read the database; give 1m or more",
                )
            )
        return findings

    def _file_findings(self) -> list[Finding]:
        of_databases = ("url", "query", "table", "login", "driver")
        given = [name for name in of_databases if getattr(self, name) is not None]
        findings = [Finding(key=(name,), what="is for jdbc; remove it") for name in given]
        if self.format == "parquet" and self.schema_ddl is not None:
            findings.append(Finding(key=("schema",), what="Parquet files name their columns; remove schema"))
        if self.format != "parquet" and self.schema_ddl is None:
            findings.append(Finding(key=("schema",), what=f"is missing; give the columns of the {self.format} files"))
        if self.path is None:
            findings.append(Finding(key=("path",), what="is missing; add it"))
        elif not self.path.exists():
            findings.append(
                Finding(key=("path",), what=f"{self.path} does not exist; give a file or a folder of this machine")
            )
        if self.schema_ddl is not None:
            findings += _schema_findings(self.schema_ddl)
        return findings

    def declared(self, name: str, copies: Path) -> StaticTable:
        """Return the table as a query's definition has it, without a version.

        Args:
            name: of the view.
            copies: the folder with the copies of database tables.
        """
        if self.format == "jdbc":
            return StaticTable(name=name, format="parquet", path=str(copy_of(copies, name)))
        ddl = self.schema_ddl or ""
        return StaticTable(name=name, format=self.format, schema_ddl=ddl, header=self.header, path=str(self.path))


def copy_of(copies: Path, name: str) -> Path:
    """Return the Parquet file with the rows of a table of a database."""
    return copies / f"{name}.parquet"


def _schema_findings(ddl: str) -> list[Finding]:
    try:
        top_level_columns(ddl)
    except ValueError as error:
        return [Finding(key=("schema",), what=str(error))]
    return []
