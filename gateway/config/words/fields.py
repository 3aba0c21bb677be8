"""The types of config fields: quantities, paths, and words."""

from __future__ import annotations

import re
from collections.abc import Callable
from os.path import normpath
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, ClassVar, Final, Self
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, ValidationInfo
from pydantic_core import PydanticCustomError

from engines.spark.sparkconf import why_owned
from gateway.config.words import units

ROW_SUFFIXES: Final = (
    *(".jsonl", ".jsonl.gz", ".jsonl.zst"),
    *(".csv", ".csv.gz", ".csv.zst"),
    *(".parquet", ".arrow", ".arrows"),
)
_MAIL_NAME: Final = re.compile(r"mail.*\.jsonl(\.gz)?$")
INPUT_SUFFIXES: Final = (*ROW_SUFFIXES, ".mbox", ".mbox.gz")


class Section(BaseModel):
    """Base of every part of the config: read-only, and an unknown key is an error."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        allow_inf_nan=False,
        # Editors show the title: it must name the section, not its class.
        model_title_generator=lambda model: model.__name__.removesuffix("Config") or model.__name__,
    )


class Checked(Section):
    """A part of the config whose fields must fit together.

    Attributes:
        CHECKS: the checks between fields, each with the fields that it needs.
    """

    CHECKS: ClassVar[tuple[tuple[str, tuple[str, ...]], ...]] = ()
    _mistaken: frozenset[str] = PrivateAttr(default=frozenset())

    @property
    def mistaken(self) -> frozenset[str]:
        """Return the fields that could not be read; a loaded config has none."""
        return self._mistaken

    def findings(self) -> list[Finding]:
        """Return the problems between the fields that could be read."""
        return [
            finding
            for check, needed in self.CHECKS
            if self._mistaken.isdisjoint(needed)
            for finding in getattr(self, check)()
        ]

    @classmethod
    def of_readable(cls, values: dict[str, Any], mistaken: frozenset[str]) -> Self:
        """Return a section of only the fields that could be read, to call its ``findings``.

        Args:
            values: by the names in the file; None for those that could not be read.
            mistaken: the fields that could not be read.
        """
        part = cls.model_construct(**values)
        part._mistaken = mistaken  # noqa: SLF001 -- the same class
        return part


class Finding(BaseModel):
    """One problem inside a section: ``key`` is the path below it."""

    key: tuple[str, ...]
    what: str


def refuse(findings: list[Finding]) -> None:
    """Raise one pydantic error that carries all of a section's findings, if there are any."""
    if findings:
        text = "; ".join(finding.what for finding in findings)
        raise PydanticCustomError("findings", "{text}", {"text": text, "findings": findings})


def _written(unit: units.Unit, parse: Callable[[object], float]) -> BeforeValidator:
    text = Annotated[str, Field(pattern=unit.pattern, examples=[unit.example])]
    return BeforeValidator(parse, json_schema_input_type=text)


Duration = Annotated[float, Field(ge=0, le=366 * 86400), _written(units.DURATION, units.duration_s)]
LongerThanZero = Annotated[float, Field(gt=0, le=366 * 86400), _written(units.DURATION, units.duration_s)]
Size = Annotated[int, Field(ge=0), _written(units.SIZE, units.size_bytes)]
Rate = Annotated[float, Field(gt=0), _written(units.RATE, units.rate_per_s)]
LinkRate = Annotated[float, Field(gt=0), _written(units.LINK_RATE, units.link_bits_per_s)]
Share = Annotated[float, Field(ge=0, le=1), _written(units.SHARE, units.share_fraction)]
Usd = Annotated[float, Field(ge=0)]


def _second_of_day(value: object) -> object:
    found = _TIME.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError(f"{value!r} is not a time of the day; write it as 22:00")
    return 3600 * int(found[1]) + 60 * int(found[2])


def _known_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ValueError, KeyError, OSError) as error:
        why = f"{name!r} is no time zone of this machine (package tzdata); write an IANA name, as in Europe/Berlin"
        raise ValueError(why) from error
    return name


_TIME: Final = re.compile(r"^([01]?\d|2[0-3]):([0-5]\d)$")
TimeOfDay = Annotated[
    int, BeforeValidator(_second_of_day, json_schema_input_type=Annotated[str, Field(pattern=_TIME.pattern)])
]
Zone = Annotated[str, AfterValidator(_known_zone)]


def folder_of(info: ValidationInfo) -> Path:
    """Return the folder that relative paths start from: the config file's, or the working directory."""
    context: dict[str, Any] = info.context or {}
    return Path(context.get("folder", Path.cwd()))


def _absolute(path: Path, info: ValidationInfo) -> Path:
    return Path(folder_of(info), path.expanduser()).absolute()


def _existing_input(path: Path) -> Path:
    if path.is_dir():
        return path
    if not path.name.endswith(INPUT_SUFFIXES):
        raise ValueError(f"{path.name} has an unsupported type; give one of {', '.join(INPUT_SUFFIXES)} or a folder")
    if not path.is_file():
        there = normpath(path)
        # The examples read mail that a command creates.
        makes = f", or make mail to play with: spillway mail {quote(there)}" if _MAIL_NAME.search(path.name) else ""
        raise ValueError(f"{there} does not exist; check the path (relative paths start at the config file){makes}")
    return path


AnyPath = Annotated[Path, AfterValidator(_absolute)]
InputPath = Annotated[Path, AfterValidator(_absolute), AfterValidator(_existing_input)]


def _matching(pattern: str, otherwise: str) -> AfterValidator:
    regex = re.compile(pattern)

    def check(text: str) -> str:
        if regex.fullmatch(text) is None:
            raise ValueError(f'"{text}" is not valid; {otherwise}')
        return text

    return AfterValidator(check)


QueryName = Annotated[
    str,
    _matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}",
        "a query's name is a file name too: up to 64 letters, digits, dots, dashes and underscores, "
        "the first a letter or digit",
    ),
]
Address = Annotated[str, _matching(r"(\[[0-9a-fA-F:]+\]|[^\s:]+):\d{1,5}", "write host:port, as in 127.0.0.1:8088")]
Master = Annotated[
    str,
    _matching(
        r"local(\[(\d+|\*)\])?|spark://[^\s,/]+:\d{1,5}(,[^\s,/]+:\d{1,5})*|k8s://\S+|yarn",
        "write local[N], spark://host:port (several: spark://host:port,host:port), k8s://… or yarn",
    ),
]
FunctionName = Annotated[
    str,
    _matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", "write package.module:name"),
]
StepName = Annotated[
    str, _matching(r"[A-Za-z][A-Za-z0-9_]{0,63}", "write up to 64 letters, digits and underscores, first a letter")
]
CpuSet = Annotated[
    str,
    BeforeValidator(
        lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value,
        json_schema_input_type=str | int,
    ),
    _matching(r"\d+(-\d+)?(,\d+(-\d+)?)*", "write CPU numbers, as in 0 or 0-1,3"),
]


def _settable(name: str) -> str:
    if why := why_owned(name):
        raise ValueError(f"is set by Spillway: {why}; remove it")
    return name


def _enough(memory_bytes: int) -> int:
    if memory_bytes < _DRIVER_BYTES_MIN:
        raise ValueError(f"is too little: Spark does not start with less than {units.SIZE.format(_DRIVER_BYTES_MIN)}")
    return memory_bytes


def _spelled(value: object) -> object:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_DRIVER_BYTES_MIN: Final = 512 * 2**20
DriverMemory = Annotated[Size, AfterValidator(_enough)]
SparkSetting = Annotated[
    str,
    _matching(r"spark\.[^\s=]+", "Spark's settings begin with spark. and hold no blank, as in spark.executor.memory"),
    AfterValidator(_settable),
]
SparkValue = Annotated[
    str, Field(max_length=10_000), BeforeValidator(_spelled, json_schema_input_type=str | int | float | bool)
]
