"""The command line: ``spillway run``, ``check``, ``status``, ``replay-dead-letters``, ``demo`` and others (``--help``).

What each command needs is imported when it runs, so that ``--help`` does not wait for Spark.
Exit codes: 0 ok, 1 it failed, 2 the input (arguments or config) is wrong.
"""

from __future__ import annotations

import json
import sys
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, NoReturn

import typer

if TYPE_CHECKING:
    from gateway.config import Config

FAILED: Final = 1
BAD_INPUT: Final = 2
_STATUS_WITHIN_S: Final = 5.0
_REPLAY_WITHIN_S: Final = 60.0

_EPILOG = "Exit codes: 0 ok, 1 it failed, 2 arguments or config are wrong."
main = typer.Typer(
    name="spillway",
    help="Keep the latency targets of Spark queries by renting cloud machines only while they help.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

lab = typer.Typer(help="A cloud to try against, on this machine.", no_args_is_help=True)
main.add_typer(lab, name="lab")

ConfigPath = Annotated[Path, typer.Argument(metavar="CONFIG", help="The YAML file, as in examples/email.yaml.")]


@main.command(epilog="Example: spillway run examples/email.yaml --until-drained --report build/report.json")
def run(
    config: ConfigPath,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="End once finite sources are done and every VM is given back.")
    ] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was measured here, as JSON.")] = None,
    keep_hosts: Annotated[
        bool, typer.Option("--keep-hosts", help="Leave engine hosts running, so that the next start takes seconds.")
    ] = False,
) -> None:
    """Run the gateway until it is told to end (SIGTERM or Ctrl-C drain it and give every VM back)."""
    loaded = _loaded(config)
    from gateway import daemon

    raise typer.Exit(daemon.run(loaded, until_drained=until_drained, report=report, keep_hosts=keep_hosts))


@main.command(epilog="Example: spillway check examples/email.yaml")
def check(
    config: ConfigPath,
    no_plan: Annotated[bool, typer.Option("--no-plan", help="Only validate; do not ask Spark for plans.")] = False,
) -> None:
    """Validate a config, then explain what would happen to each query and why."""
    loaded = _loaded(config)
    if no_plan:
        typer.echo(f"{config}: ok ({len(loaded.queries)} queries)")
        return
    from gateway.checkview import show

    raise typer.Exit(show(config, loaded))


@main.command(epilog="Example: spillway schema > spillway.schema.json")
def schema() -> None:
    """Print the JSON Schema of the config, for editors and other tools."""
    from gateway.config import Config

    typer.echo(json.dumps(Config.model_json_schema(), indent=2))


@main.command(epilog="Example: spillway status examples/email.yaml")
def status(config: ConfigPath) -> None:
    """Print what the running gateway of a config says of itself, as JSON."""
    said = _asked(config, _loaded(config), "/status", _STATUS_WITHIN_S)
    typer.echo(json.dumps(said, indent=2))


@main.command(epilog="Example: spillway replay-dead-letters examples/email.yaml email-processor")
def replay_dead_letters(
    config: ConfigPath, query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")]
) -> None:
    """Give a query of the running gateway its dead letters back as new events; those that fail again are kept again."""
    loaded = _loaded(config)
    if query not in loaded.queries:
        _fail(f'{config} has no query "{query}"; its queries are {", ".join(loaded.queries)}', BAD_INPUT)
    path = f"/queries/{urllib.parse.quote(query, safe='')}/replay-dead-letters"
    said = _asked(config, loaded, path, _REPLAY_WITHIN_S, post=True)
    typer.echo(f"{query}: {said['replayed']} dead letters go back into it")


@main.command(epilog="Example: spillway demo --mail inbox.mbox.gz")
def demo(
    mail: Annotated[
        Path | None, typer.Option(metavar="MBOX|MAILDIR", help="Replay this mail; generated mail without it.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the report goes.")] = Path("build/demo"),
) -> None:
    """Play the e-mail benchmark three ways: private only, elastic, elastic with trimming and compression."""
    if mail is not None and not mail.exists():
        _fail(f"{mail} does not exist; give an mbox file (.gz too) or a folder of mails", BAD_INPUT)
    from gateway.demo.run import main as play

    raise typer.Exit(play(mail, out))


@main.command(epilog="Example: spillway simulate examples/email.yaml --served 2000/s --for 10m")
def simulate(
    config: ConfigPath,
    served: Annotated[str, typer.Option(metavar="RATE", help="Events that an engine host serves, as in 2000/s.")],
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="CSV with at_s,query,events,bytes; else the config's replay rates."),
    ] = None,
    load_for: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long events come, without a trace.")
    ] = "10m",
    stays_home: Annotated[
        list[str] | None,
        typer.Option(metavar="QUERY", help="A query that may not be split, as check says; repeatable."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal results.")] = 1,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write what was measured here, as JSON.")] = None,
) -> None:
    """Try a config in virtual time: latency and money, beside the private cluster alone."""
    loaded = _loaded(config)
    from gateway.config.units import UnitError, duration_s, rate_per_s
    from gateway.simulate import plan
    from gateway.simulate.query import BrokenPromiseError

    try:
        recorded = None if trace is None else plan.read_trace(trace)
        served_per_s, for_s = rate_per_s(served), duration_s(load_for)
        world = plan.plan(
            loaded,
            served_per_s=served_per_s,
            for_s=for_s,
            seed=seed,
            trace=recorded,
            stays_home=stays_home or (),
        )
    except (UnitError, plan.TraceError) as error:
        _fail(str(error), BAD_INPUT)
    try:
        outcomes = plan.compare(world)
    except BrokenPromiseError as error:
        _fail(f"the simulated gateway broke a promise, which is a mistake of Spillway's own: {error}", FAILED)
    for line in plan.table(outcomes):
        typer.echo(line)
    if report is not None:
        try:
            report.write_text(json.dumps(plan.report(outcomes), indent=2) + "\n", encoding="utf-8")
        except OSError as error:
            _fail(f"{report}: {error.strerror or error}", FAILED)


@main.command(epilog="Example: spillway mail mail.jsonl.gz --from inbox.mbox.gz")
def mail(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .jsonl or .jsonl.gz file.")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="MBOX|MAILDIR", help="Real mail; generated mail without it.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many mails to generate.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="Equal seeds give equal mail.")] = 1,
) -> None:
    """Write mail as JSON lines, the input of examples/email.yaml."""
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        _fail(f"{out}: give a name that ends with .jsonl or .jsonl.gz", BAD_INPUT)
    if source is not None and not source.exists():
        _fail(f"{source} does not exist; give an mbox file (.gz too) or a folder of mails", BAD_INPUT)
    from engines.email.mailbox import MailReport
    from gateway.mailfile import chosen_mail, write_mail

    report = MailReport()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        written = write_mail(chosen_mail(source, count, seed, report), out)
    except OSError as error:
        _fail(f"{error.filename or out}: {error.strerror or error}", FAILED)
    first = f"; the first of {report.malformed} that could not be read: {report.reasons[0]}" if report.reasons else ""
    if not written:
        out.unlink()
        _fail(f"{source}: no mail in it could be read{first}", FAILED)
    typer.echo(f"{out}: {written} mails{first}")


@main.command(epilog="Started by the gateway; by hand only to look for a fault.")
def worker(
    user_data: Annotated[Path, typer.Option(metavar="FILE", help="What the gateway tells a new host (JSON).")],
    workdir: Annotated[Path, typer.Option(metavar="FOLDER", help="A folder of this host alone.")],
    master: Annotated[str, typer.Option(help="Spark master: local[N], spark://host:port, …")] = "local[1]",
    cpus: Annotated[str | None, typer.Option(help="Pin the host to these CPUs, as in 0-1,3.")] = None,
) -> None:
    """Run an engine host: one Spark session that serves queries to a gateway."""
    from engines import worker as host

    raise typer.Exit(host.main(user_data, workdir, master, cpus))


@lab.command("up", epilog="Example: sudo spillway lab up")
def lab_up(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="For consoles and logs.")] = Path("build/lab"),
) -> None:
    """Run an EC2 on this machine (root; moto): instances are network namespaces that run their user data."""
    from gateway import lab as machines

    raise typer.Exit(machines.up(folder))


def _asked(config: Path, loaded: Config, path: str, within_s: float, *, post: bool = False) -> Any:
    """Return what the running gateway of a config answers, decoded."""
    listen = loaded.gateway.api.listen
    request = urllib.request.Request(
        f"http://{listen}{path}",
        method="POST" if post else "GET",
        headers={"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=within_s) as answer:  # noqa: S310 -- http, as it says
            return json.load(answer)
    except urllib.error.HTTPError as error:
        _fail(error.read().decode(errors="replace") or str(error), FAILED)
    except (urllib.error.URLError, TimeoutError, ValueError) as error:
        reason = getattr(error, "reason", error)
        _fail(f"no gateway answers at {listen} ({reason}); start it with: spillway run {config}", FAILED)


def _loaded(path: Path) -> Config:
    from gateway.config import ConfigError, load

    try:
        return load(path)
    except ConfigError as error:
        _fail(str(error), BAD_INPUT)


def _fail(text: str, code: int) -> NoReturn:
    typer.echo(text, err=True)
    raise typer.Exit(code)


if __name__ == "__main__":
    sys.exit(main())
