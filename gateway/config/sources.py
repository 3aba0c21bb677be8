"""The config's sections about where a query's events come from."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from gateway.config.fields import Finding, InputPath, LongerThanZero, QueryName, Rate, Section, refuse
from gateway.config.http import HttpSource
from gateway.config.kafka import KafkaSource
from gateway.config.mqtt import MqttSource


class Step(Section):
    """One step of a replay's profile."""

    for_s: LongerThanZero = Field(alias="for")
    rate_per_s: Rate = Field(alias="rate")


class Replay(Section):
    """When the rows of a file are due.

    Attributes:
        rate_per_s: one rate for all of it; or
        profile: one rate after the other; the last one holds to the end. Without either: as fast as possible.
        loops: how often the file is played.
        id_field: a STRING column that is made distinct in each loop.
    """

    rate_per_s: Rate | None = Field(default=None, alias="rate")
    profile: Annotated[tuple[Step, ...], Field(min_length=1, max_length=10_000)] | None = None
    loops: int = Field(default=1, ge=1)
    id_field: str | None = Field(default=None, alias="id")

    @model_validator(mode="after")
    def _one_of_two(self) -> Self:
        if self.rate_per_s is not None and self.profile is not None:
            refuse([Finding(key=("rate",), what="rate and profile exclude each other; keep one of them")])
        return self


class FileSource(Section):
    """Rows from a file or a maildir; without ``replay`` as fast as they can be taken."""

    type: Literal["file"]
    path: InputPath
    replay: Replay | None = None


class QuerySource(Section):
    """The results of another query, in strict order."""

    type: Literal["query"]
    name: QueryName


Source = Annotated[FileSource | QuerySource | KafkaSource | MqttSource | HttpSource, Field(discriminator="type")]
