"""``spillway init``: a first config, from a few answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, NamedTuple, TypeVar

import typer

from gateway.commands.common import BAD_INPUT, FAILED, fail

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gateway.views.firstconfig.writing import FirstAnswers

_SQL: Final = "SELECT * FROM events"
T = TypeVar("T")


def register(main: typer.Typer) -> None:
    """Add the command."""
    main.command(epilog="Example: spillway init orders.yaml --source orders.csv --target 2s --yes")(init)


class _Said(NamedTuple):
    """The options; None: not said."""

    source: str | None
    sample: Path | None
    schema: str | None
    sql: str | None
    target: str | None
    sink: str | None
    yes: bool


def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The config to write.")] = Path("spillway.yaml"),
    source: Annotated[
        str | None,
        typer.Option(
            metavar="PATH|URL",
            help="A file, a folder, kafka://HOST:PORT/TOPIC, mqtt://HOST/TOPIC, s3://BUCKET/PREFIX, or "
            "http://127.0.0.1:PORT/PATH.",
        ),
    ] = None,
    sample: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Find the columns in this file instead of in the source.")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(metavar="COLUMNS", help="As in 'id STRING, n INT'. Default: found in the events.")
    ] = None,
    sql: Annotated[str | None, typer.Option(help=f"The query over the view events. Default: {_SQL}")] = None,
    target: Annotated[str | None, typer.Option(metavar="DURATION", help="The latency target. Default: 2s.")] = None,
    sink: Annotated[str | None, typer.Option(metavar="FOLDER", help="Where results go. Default: out.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing: take the defaults.")] = False,
) -> None:
    """Write a first config: asks for the source, finds its columns, asks for the query, the target and the sink."""
    from gateway.views.firstconfig.writing import AnswerError, config_text

    said = _Said(source, sample, schema, sql, target, sink, yes)
    try:
        if file.exists() and (yes or not typer.confirm(f"{file} exists. Replace it?")):
            fail(f"{file} exists, and stays as it is: give another name, as in spillway init second.yaml", BAD_INPUT)
        _write(file, config_text(_answers(said, file), _state(file)))
    except AnswerError as error:
        fail(str(error), BAD_INPUT)
    except typer.Abort:
        fail("nothing was written; without a terminal, give --source and --yes", FAILED)
    typer.echo(f"{file} is written. Next: spillway try {file}; then spillway check {file}, and spillway run {file}")


def _answers(said: _Said, file: Path) -> FirstAnswers:
    from gateway.views.firstconfig import writing

    if said.yes and said.source is None:
        raise writing.AnswerError(f"--yes needs --source: {writing.SOURCES}")
    folder = file.parent
    section = _asked(
        f"Where do events come from? ({writing.SOURCES})",
        said.source,
        None,
        lambda text: writing.source_section(text, folder),
        said,
    )
    ddl = _columns(said, section, folder)
    sql = _asked("Query over the view events", said.sql, _SQL, writing.checked_sql, said)
    target = _asked("Latency target", said.target, "2s", writing.checked_target, said)
    sink = _asked("Folder for results", said.sink, "out", str, said)
    name = writing.query_name(section)
    return writing.FirstAnswers(name, section, ddl, sql, target, writing.path_from(folder, Path(sink)))


def _columns(said: _Said, section: Mapping[str, Any], folder: Path) -> str:
    from gateway.views.firstconfig import writing
    from gateway.views.firstconfig.inferring import InferError
    from gateway.views.firstconfig.sampled import infer

    if said.schema is not None:
        return writing.checked_ddl(said.schema)
    default = None
    try:
        found = infer(section, folder, said.sample)
        default = found.ddl
        if found.records:
            typer.echo(f"columns of the first {found.records} records: {found.ddl}")
        if found.unfit:
            typer.echo(f"{found.unfit} of these do not fit, and would be dead letters; the first: {found.reason}")
    except InferError as error:
        if said.yes:
            raise writing.AnswerError(f"{error}: give --sample FILE with some events, or --schema") from error
        typer.echo(str(error), err=True)
    return _asked("Columns", None, default, writing.checked_ddl, said)


def _asked(what: str, given: str | None, default: str | None, read: Callable[[str], T], said: _Said) -> T:
    """Return an option, or the default, or what the user answers; asks again until the answer can be used."""
    from gateway.views.firstconfig.writing import AnswerError

    if given is not None or said.yes:
        return read(given or default or "")

    def answered(text: str) -> T:
        try:
            return read(text.strip())
        except AnswerError as error:
            raise typer.BadParameter(str(error)) from error

    answer: T = typer.prompt(what, default=default, value_proc=answered)
    return answer


def _state(file: Path) -> str:
    """Return a state_dir that no other config in the folder has."""
    return "./state" if not (file.parent / "state").exists() else f"./{file.stem}-state"


def _write(file: Path, text: str) -> None:
    """Write a config that is right; nothing else replaces the file."""
    from gateway.config import ConfigError, load

    new = file.with_name(f".{file.name}.new")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        load(new)
        new.replace(file)
    except ConfigError as error:
        fail(
            "the config would be wrong: " + "; ".join(f"{each.key}: {each.text}" for each in error.problems), BAD_INPUT
        )
    except OSError as error:
        fail(f"{error.filename or file}: {error.strerror or error}", FAILED)
    finally:
        new.unlink(missing_ok=True)
