"""The config's section about a static table that a query reads besides its events."""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from gateway.config.words.ddl import top_level_columns
from gateway.config.words.fields import AnyPath, Duration, Finding, Section, refuse
from infra.messages import StaticTable

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OF_EVENTS: Final = "events"


def _is_view_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f'"{name}" is not valid; a table is a view: give up to 64 letters, digits and underscores')
    if name.lower() == _OF_EVENTS:
        raise ValueError(f'"{name}" is the view of the stream; give the table another name')
    return name


TableName = Annotated[str, AfterValidator(_is_view_name)]


class TableConfig(Section):
    """A file or a folder that a query reads as a view; see docs/tables.md.

    Attributes:
        path: a file, or a folder whose files are read together.
        format: of the files.
        schema_ddl: the columns of CSV and JSON files; Parquet files name theirs.
        header: whether the first line of each CSV file has the names of the columns.
        refresh_s: how often to look for new content; None: only when the query is opened.
    """

    path: AnyPath
    format: Literal["csv", "parquet", "json"]
    schema_ddl: str | None = Field(default=None, alias="schema", min_length=1)
    header: bool = False
    refresh_s: Annotated[Duration, Field(ge=1)] | None = Field(default=None, alias="refresh")

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = []
        if self.format == "parquet" and self.schema_ddl is not None:
            findings.append(Finding(key=("schema",), what="Parquet files name their columns; remove schema"))
        if self.format != "parquet" and self.schema_ddl is None:
            findings.append(Finding(key=("schema",), what=f"is missing; give the columns of the {self.format} files"))
        if self.format != "csv" and self.header:
            findings.append(Finding(key=("header",), what="is for csv; remove it"))
        if not self.path.exists():
            findings.append(
                Finding(key=("path",), what=f"{self.path} does not exist; give a file or a folder of this machine")
            )
        if self.schema_ddl is not None:
            findings += _schema_findings(self.schema_ddl)
        refuse(findings)
        return self

    def declared(self, name: str) -> StaticTable:
        """Return the table as a query's definition has it, without a version."""
        ddl = self.schema_ddl or ""
        return StaticTable(name=name, format=self.format, schema_ddl=ddl, header=self.header, path=str(self.path))


def _schema_findings(ddl: str) -> list[Finding]:
    try:
        top_level_columns(ddl)
    except ValueError as error:
        return [Finding(key=("schema",), what=str(error))]
    return []
