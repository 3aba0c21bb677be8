"""The kinds of value that config fields have: quantities, paths, words of which some come later."""

from __future__ import annotations

import re
from collections.abc import Callable
from os.path import normpath
from pathlib import Path
from shlex import quote
from typing import Annotated, Any, Final, NoReturn

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo
from pydantic_core import PydanticCustomError

from gateway.config import units

# Words of the design that this version does not serve yet: a clearer answer than "unknown".
LATER: Final[dict[str, tuple[str, ...]]] = {
    "mode": ("keys", "selections"),
}
ROW_SUFFIXES: Final = (
    *(".jsonl", ".jsonl.gz", ".jsonl.zst"),
    *(".csv", ".csv.gz", ".csv.zst"),
    *(".parquet", ".arrow", ".arrows"),
)
_MAIL_NAME: Final = re.compile(r"mail.*\.jsonl(\.gz)?$")
INPUT_SUFFIXES: Final = (*ROW_SUFFIXES, ".mbox", ".mbox.gz")


class Section(BaseModel):
    """Base of every part of the config: read-only, and an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Finding(BaseModel):
    """One thing wrong inside a section: ``key`` is the path below it."""

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


def not_yet(kind: str, available: tuple[str, ...]) -> BeforeValidator:
    """Return a validator that says so when a word is known but comes later."""

    def check(value: object) -> object:
        if value in LATER[kind]:
            _refuse_word(value, available)
        return value

    return BeforeValidator(check)


def _refuse_word(value: object, available: tuple[str, ...]) -> NoReturn:
    raise ValueError(f'"{value}" is not available yet; available now: {", ".join(available)}')


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
        raise ValueError(f"{path.name} is of no kind this reads; give one of {', '.join(INPUT_SUFFIXES)} or a folder")
    if not path.is_file():
        there = normpath(path)
        # The examples read mail that a command makes.
        makes = f", or make mail to play with: spillway mail {quote(there)}" if _MAIL_NAME.search(path.name) else ""
        raise ValueError(f"{there} does not exist; check the path (relative paths start at the config file){makes}")
    return path


AnyPath = Annotated[Path, AfterValidator(_absolute)]
InputPath = Annotated[Path, AfterValidator(_absolute), AfterValidator(_existing_input)]


def _matching(pattern: str, otherwise: str) -> AfterValidator:
    regex = re.compile(pattern)

    def check(text: str) -> str:
        if regex.fullmatch(text) is None:
            raise ValueError(f'"{text}" is not right; {otherwise}')
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
        r"local(\[(\d+|\*)\])?|spark://\S+|k8s://\S+|yarn",
        "write local[N], spark://host:port, k8s://… or yarn",
    ),
]
FunctionName = Annotated[
    str,
    _matching(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", "write package.module:name"),
]
CpuSet = Annotated[
    str,
    BeforeValidator(lambda value: str(value) if isinstance(value, int) and not isinstance(value, bool) else value),
    _matching(r"\d+(-\d+)?(,\d+(-\d+)?)*", "write CPU numbers, as in 0 or 0-1,3"),
]
