"""The command line: ``spillway run``, ``check``, ``status``, ``replay-dead-letters``, ``demo`` and others (``--help``).

Each command imports its modules when it runs, so that ``--help`` does not wait for Spark.
Exit codes: 0 success, 1 failure, 2 wrong input (arguments or config).
"""

from __future__ import annotations

import json
import os
import urllib.parse
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import typer

from gateway.commands import (
    beginning,
    benching,
    explaining,
    reading,
    reporting,
    simulating,
    steering,
    trying,
    watching,
)
from gateway.commands.common import BAD_INPUT, FAILED, ConfigPath, asked, fail, loaded, with_query
from infra.loading import loading

# Models are small matrices: more BLAS threads would only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")
_REPLAY_WITHIN_S: Final = 60.0
_ROTATE_WITHIN_S: Final = 300.0

_EPILOG = "Exit codes: 0 success, 1 failure, 2 wrong arguments or config."
main = typer.Typer(
    name="spillway",
    help="Keep the latency targets of Spark queries. Rent VMs only while they help.",
    epilog=_EPILOG,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

lab = typer.Typer(help="Run a test cloud on this machine.", no_args_is_help=True)
main.add_typer(lab, name="lab")
certificates = typer.Typer(help="Renew the certificates of the gateway and its engine hosts.", no_args_is_help=True)
main.add_typer(certificates, name="certificates")


@main.command(epilog="Example: spillway run examples/email.yaml --until-drained --report build/report.json")
def run(
    config: ConfigPath,
    until_drained: Annotated[
        bool, typer.Option("--until-drained", help="Exit once finite sources are done and every VM is terminated.")
    ] = False,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a JSON report of the first query to this file, and one of each other."
        ),
    ] = None,
    keep_hosts: Annotated[
        bool, typer.Option("--keep-hosts", help="Leave the engine hosts running, so that the next start takes seconds.")
    ] = False,
    record: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Add the arrivals to a CSV file for simulate --trace.")
    ] = None,
) -> None:
    """Run the gateway. On SIGTERM or Ctrl-C it drains, terminates every VM, and exits."""
    with loading():
        found = loaded(config)
        if record is not None:
            _check_trace(record)
        from gateway import start

    code = start.run(found, until_drained=until_drained, report=report, keep_hosts=keep_hosts, record=record)
    raise typer.Exit(code)


def _check_trace(path: Path) -> None:
    from gateway.views.tracefile import NoTraceError, end_of_trace

    try:
        end_of_trace(path)
    except NoTraceError as error:
        fail(str(error), BAD_INPUT)
    except OSError as error:
        fail(f"{error.filename or path}: {error.strerror or error}", FAILED)


@main.command(epilog="Example: spillway check examples/email.yaml")
def check(
    config: ConfigPath,
    no_plan: Annotated[bool, typer.Option("--no-plan", help="Only validate, without plans from Spark.")] = False,
) -> None:
    """Report everything in a config or its state that run would refuse, and explain what would happen to each query."""
    from gateway.views.check.checkview import show

    def overlap_of(*of: Any) -> str:
        from gateway.views.tryout.overlap import overlap_of  # it imports Spark, which --no-plan does not need

        return overlap_of(*of)

    raise typer.Exit(show(config, overlap_of, plan=not no_plan))


@main.command(epilog="Example: spillway schema > spillway.schema.json")
def schema() -> None:
    """Print the JSON Schema of the config, for editors and other tools."""
    from gateway.config.reference.schema import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


beginning.register(main)
trying.register(main)
watching.register(main)
explaining.register(main)
reporting.register(main)
reading.register(main)
steering.register(main)
simulating.register(main)
benching.register(main)


@main.command(epilog="Example: spillway replay-dead-letters examples/email.yaml email-processor")
def replay_dead_letters(
    config: ConfigPath, query: Annotated[str, typer.Argument(metavar="QUERY", help="The query's name.")]
) -> None:
    """Feed the dead letters of a query back into it as new events. Rows that fail again become dead letters again."""
    path = f"/queries/{urllib.parse.quote(query, safe='')}/replay-dead-letters"
    said = asked(with_query(config, query), path, _REPLAY_WITHIN_S, {})
    typer.echo(f"{query}: {said['replayed']} dead letters are being replayed")


@main.command(epilog="Example: spillway demo --mail inbox.mbox.gz")
def demo(
    mail: Annotated[
        Path | None, typer.Option(metavar="MBOX|MAILDIR", help="Replay this mail. Default: generated mail.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder for the report.")] = Path("build/demo"),
    wan: Annotated[
        str | None,
        typer.Option(
            metavar="WAN", help="Emulate the WAN in the kernel (root): RTT, rate, loss, as in 70ms,50mbit,loss 0.1%."
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One short spike, to see that everything works.")] = False,
    cold: Annotated[
        bool,
        typer.Option("--cold", help="VMs start their Spark once they are ordered. Default: warm, with a boot of 5 s."),
    ] = False,
    runs: Annotated[
        int, typer.Option(metavar="N", min=1, max=20, help="How often, in varied orders; shows median and range.")
    ] = 1,
    policy: Annotated[
        Literal["reactive", "lookahead", "cpu", "auto"], typer.Option(help="What decides about VMs (docs/policies.md).")
    ] = "reactive",
    kafka: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Play from Kafka to Kafka on this broker, with data_path: direct."),
    ] = None,
    connector: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Jars of Spark's Kafka connector. Default: Spark downloads them."),
    ] = None,
) -> None:
    """Run the e-mail benchmark three times: private only, elastic, elastic with trimming and compression."""
    if mail is not None and not mail.exists():
        fail(f"{mail} does not exist; give an mbox file (.gz too) or a folder of mails", BAD_INPUT)
    if quick and (cold or wan is not None):
        other = "--cold" if cold else "--wan"
        fail(f"--quick and {other} exclude each other: leave out one of them", BAD_INPUT)
    pace = "quick" if quick else "cold" if cold else "full"
    if kafka is not None:
        if cold or wan is not None:
            fail(f"--kafka and {'--cold' if cold else '--wan'} exclude each other: leave out one of them", BAD_INPUT)
        raise typer.Exit(_demo_on_kafka(mail, out, kafka, connector, pace, runs, policy))
    if connector is not None:
        fail("--connector is for --kafka only", BAD_INPUT)
    if wan is None:
        from gateway.demo.load import PACES
        from gateway.demo.run import main as play

        raise typer.Exit(play(mail, out, pace=PACES[pace], runs=runs, policy=policy))
    from gateway.demo import across
    from gateway.demo.behind import WanTextError, parse_wan
    from gateway.demo.stage import MAX_VMS

    try:
        parse_wan(wan)
    except WanTextError as error:
        fail(str(error), BAD_INPUT)
    raise typer.Exit(across.play(mail, out, wan, MAX_VMS, pace, runs, policy))


def _demo_on_kafka(
    mail: Path | None,
    out: Path,
    brokers: str,
    connector: Path | None,
    pace: str,
    runs: int,
    policy: Literal["reactive", "lookahead", "cpu", "auto"],
) -> int:
    from gateway.config.sections.extras import why_missing

    if why := why_missing("demos with --kafka", "kafka"):
        fail(why, BAD_INPUT)
    from gateway.demo.kafka.run import PACES
    from gateway.demo.kafka.run import main as play
    from gateway.demo.kafka.site import KafkaSite

    site = KafkaSite(brokers, connector)
    if site.why_not:
        fail(site.why_not, BAD_INPUT)
    return play(mail, out, site, PACES[pace], runs, policy)


@main.command(epilog="Example: spillway profile examples/email.yaml --query email-processor --out measured.yaml")
def profile(
    config: ConfigPath,
    out: Annotated[Path, typer.Option(metavar="FILE", help="The YAML file for the simulator's parameters.")],
    query: Annotated[
        list[str] | None, typer.Option(metavar="QUERY", help="Measure this query; repeatable. Default: all.")
    ] = None,
) -> None:
    """Measure for simulate --parameters how long Spark takes for a query, and how many of its bytes cross the WAN."""
    found = loaded(config)
    from engines.spark.session import SessionError
    from gateway.simulate.parameters.calibration import write_calibration
    from gateway.simulate.parameters.measuring import profile as measure
    from gateway.simulate.parameters.profilingruns import ProfileError

    for name in query or ():
        if name not in found.queries:
            fail(f'{config} has no query "{name}"; its queries are {", ".join(found.queries)}', BAD_INPUT)
    try:
        measured = measure(found, query or list(found.queries), lambda text: typer.echo(text, err=True))
        write_calibration(measured, out)
    except (SessionError, ProfileError) as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror or error}", FAILED)
    for name, one in measured.queries.items():
        typer.echo(
            f"{name}: a micro-batch takes {one.batch_s * 1e3:.1f} ms (± {one.batch_error_s * 1e3:.1f}), "
            f"{one.run_s * 1e3:.1f} ms (± {one.run_error_s * 1e3:.1f}) for each run after the first, and "
            f"{one.event_s * 1e6:.1f} µs an event (± {one.event_error_s * 1e6:.1f}): {one.events_per_s:,.0f} events/s"
        )
        if one.sent_part is not None:
            typer.echo(f"{name}: {one.sent_part:.1%} of its raw bytes would cross the WAN ({one.sent_from})")


@main.command(epilog="Example: spillway prepare")
def prepare() -> None:
    """Make Spark start faster on this machine: archive the Java classes that it loads, once."""
    from engines.prepare import prepare as write_archive
    from engines.query.known import RefusedError
    from engines.spark.classarchive import archive
    from engines.spark.session import SessionError

    if not archive().is_file():
        typer.echo("starting Spark once to archive the classes that it loads; this takes about 30 s", err=True)
        try:
            write_archive()
        except (SessionError, RefusedError) as error:
            fail(str(error), FAILED)
        except OSError as error:
            fail(f"{error.filename or archive()}: {error.strerror or error}", FAILED)
    typer.echo(f"{archive()}; Spark starts with it from now on; you can delete it at any time")


@main.command(epilog="Example: spillway mail mail.jsonl.gz --from inbox.mbox.gz")
def mail(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="A .jsonl or .jsonl.gz file.")],
    source: Annotated[
        Path | None, typer.Option("--from", metavar="MBOX|MAILDIR", help="Use this mail. Default: generated mail.")
    ] = None,
    count: Annotated[int, typer.Option(min=1, help="How many mails to generate.")] = 4000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same mail.")] = 1,
) -> None:
    """Write mail as JSON lines, the input for examples/email.yaml."""
    if not out.name.endswith((".jsonl", ".jsonl.gz")):
        fail(f"{out}: give a name that ends with .jsonl or .jsonl.gz", BAD_INPUT)
    if source is not None and not source.exists():
        fail(f"{source} does not exist; give an mbox file (.gz too) or a folder of mails", BAD_INPUT)
    from engines.email.mailbox import MailReport
    from gateway.demo.mailfile import chosen_mail, write_mail

    report = MailReport()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        written = write_mail(chosen_mail(source, count, seed, report), out)
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror or error}", FAILED)
    first = f"; the first of {report.malformed} that could not be read: {report.reasons[0]}" if report.reasons else ""
    if not written:
        out.unlink()
        fail(f"{source}: no mail in it could be read{first}", FAILED)
    typer.echo(f"{out}: {written} mails{first}")


@main.command(epilog="Example: spillway image config.yaml; then docker/image/README.md")
def image(
    config: ConfigPath,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="The folder to write to.")] = Path("build/image"),
) -> None:
    """Write the files for building a cloud image: this Spillway, the config's own code, and the script."""
    found = loaded(config)
    from gateway.fleet.image import write_image_files
    from infra.clouds.bundle import BundleError

    try:
        script = write_image_files(found, out)
    except BundleError as error:
        fail(str(error), FAILED)
    except OSError as error:
        fail(f"{error.filename or out}: {error.strerror or error}", FAILED)
    typer.echo(f"{script}: run it as root on the VM from which you take the image, together with the files beside it")


@main.command(epilog="The gateway starts this command. Run it by hand only to debug.")
def worker(
    user_data: Annotated[Path, typer.Option(metavar="FILE", help="What the gateway sends a new host (JSON).")],
    workdir: Annotated[Path, typer.Option(metavar="FOLDER", help="A folder that only this host uses.")],
    master: Annotated[str, typer.Option(help="Spark master: local[N], spark://host:port, …")] = "local[1]",
    cpus: Annotated[str | None, typer.Option(help="Pin the host to these CPUs, as in 0-1,3.")] = None,
) -> None:
    """Run an engine host: one Spark session that serves queries to a gateway."""
    from engines import worker as host

    raise typer.Exit(host.main(user_data, workdir, master, cpus))


@lab.command("up", epilog="Example: sudo spillway lab up")
def lab_up(
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Keeps consoles and logs.")] = Path("build/lab"),
) -> None:
    """Run an EC2 API on this machine (root; moto). Instances are network namespaces that run their user data."""
    from gateway.demo import lab as machines

    raise typer.Exit(machines.up(folder))


@certificates.command("rotate", epilog="Example: spillway certificates rotate examples/email.yaml")
def certificates_rotate(config: ConfigPath) -> None:
    """Issue new keys for the running gateway and its engine hosts. The old certificates are refused from then on."""
    said = asked(loaded(config), "/certificates/rotate", _ROTATE_WITHIN_S, {})
    later = f"; still to be refused by {', '.join(said['later'])}" if said["later"] else ""
    typer.echo(f"the gateway and {len(said['renewed'])} engine hosts have new certificates{later}")
