"""The config's sections about the source of a query's events."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.config.connectors.http import HttpSourceConfig
from gateway.config.connectors.kafka import KafkaSourceConfig
from gateway.config.connectors.mqtt import MqttSourceConfig
from gateway.config.connectors.s3 import S3SourceConfig
from gateway.config.words.fields import (
    ROW_SUFFIXES,
    Finding,
    InputPath,
    LongerThanZero,
    QueryName,
    Rate,
    Section,
    refuse,
)


class StepConfig(Section):
    """One step of a replay's profile.

    Attributes:
        for_s: how long the step lasts.
        rate_per_s: how many events are due in a second.
    """

    for_s: LongerThanZero = Field(alias="for")
    rate_per_s: Rate = Field(alias="rate")


class ReplayConfig(Section):
    """When the rows of a file are due.

    Attributes:
        rate_per_s: one rate for all of it. Without ``rate``, ``profile`` and ``times``: as fast as possible.
        profile: several rates, one after the other; the last one lasts to the end.
        times: a TIMESTAMP column: rows are due as far apart as they were recorded.
        speed: a factor on the rates or times.
        loops: how often the file is replayed.
        id_field: a STRING column that is made distinct in each loop.
    """

    rate_per_s: Rate | None = Field(default=None, alias="rate")
    profile: Annotated[tuple[StepConfig, ...], Field(min_length=1, max_length=10_000)] | None = Field(
        default=None, examples=[[{"for": "60s", "rate": "500/s"}, {"for": "20s", "rate": "2000/s"}]]
    )
    times: str | None = Field(default=None, examples=["sent"])
    speed: Annotated[float, Field(gt=0, le=1e6)] = Field(default=1.0, examples=[10])
    loops: int = Field(default=1, ge=1, examples=[3])
    id_field: str | None = Field(default=None, alias="id", examples=["message_id"])

    @model_validator(mode="after")
    def _one_pace(self) -> Self:
        paces = {"rate": self.rate_per_s, "profile": self.profile, "times": self.times}
        said = [key for key, value in paces.items() if value is not None]
        if len(said) > 1:
            what = f"{' and '.join(said)} exclude each other; keep one of them"
            refuse([Finding(key=(said[0],), what=what)])
        if not said and self.speed != 1.0:
            refuse([Finding(key=("speed",), what="speeds up a rate, a profile or times; give one of them")])
        return self


class FileSourceConfig(Section):
    """Rows from a file or a folder. Without ``replay`` they are read as fast as possible.

    Attributes:
        path: a file, a folder of such files (read in the order of their names), or a maildir.
        follow: also read files that appear in the folder later; the source then never ends.
        replay: when rows are due. Default: as fast as possible.
    """

    type: Literal["file"]
    path: InputPath = Field(examples=["orders.jsonl"])
    follow: bool = False
    replay: ReplayConfig | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        findings = []
        folder = self.path.is_dir()
        if self.follow and not folder:
            findings.append(Finding(key=("follow",), what="needs a folder, but path is a file; remove follow"))
        if self.follow and self.replay is not None:
            what = "replay needs all rows at the start, but follow adds rows later; keep one of them"
            findings.append(Finding(key=("replay",), what=what))
        if folder and not self.follow and not any(self.path.iterdir()):
            what = f"{self.path} is an empty folder; put files or mails there first, or say follow: true"
            findings.append(Finding(key=("path",), what=what))
        refuse(findings)
        return self

    @property
    def has_row_files(self) -> bool:
        """Whether ``path`` is a folder of files of rows, and not a maildir."""
        return self.follow or any(entry.name.endswith(ROW_SUFFIXES) for entry in self.path.iterdir())


class QuerySourceConfig(Section):
    """The results of another query, in strict order.

    Attributes:
        name: the query whose results are read.
    """

    type: Literal["query"]
    name: QueryName = Field(examples=["large-orders"])


SourceConfig = Annotated[
    FileSourceConfig | S3SourceConfig | QuerySourceConfig | KafkaSourceConfig | MqttSourceConfig | HttpSourceConfig,
    Field(discriminator="type"),
]
