"""The commands as a user types them: their output and exit codes."""

from __future__ import annotations

import gzip
import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from engines.email.generator import generate_mail
from gateway.cli import main
from gateway.demo.mailfile import write_mail

CONFIG = """\
gateway:
  state_dir: state
  api: {{listen: "127.0.0.1:{port}"}}
cloud:
  provider: process
  max_vms: 1
  boot: 10s
  billing: {{period: 60s, minimum: 60s, usd_per_hour: 0.1, usd_per_gb_sent: 0.09}}
  budget: {{usd_per_day: 5}}
queries:
  words:
    source: {{type: file, path: in.jsonl}}
    schema: id STRING, body STRING, extra STRING
    sql: {sql}
    sink: {{type: file, path: out}}
    qos: {{latency: 2s}}
"""
TOKEN = "a-token-of-the-test"
SQL = "SELECT id, length(body) AS n FROM events WHERE id LIKE 'a%'"


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def written(folder: Path, sql: str = SQL, port: int = 8088) -> Path:
    (folder / "in.jsonl").touch()
    path = folder / "config.yaml"
    path.write_text(CONFIG.format(sql=sql, port=port))
    token = folder / "state" / "api-token"
    token.parent.mkdir(exist_ok=True)
    token.write_text(TOKEN)
    token.chmod(0o600)
    return path


def test_help_names_every_command_and_the_exit_codes() -> None:
    said = invoke("--help").output
    assert all(f"\n│ {name} " in said for name in ("run", "check", "schema", "status", "demo", "mail", "worker"))
    assert "Exit codes" in said


@pytest.mark.parametrize("command", ["run", "check", "schema", "status", "demo", "mail"])
def test_the_help_of_a_command_has_an_example(command: str) -> None:
    assert f"Example: spillway {command}" in invoke(command, "--help").output


def test_help_does_not_wait_for_spark_or_pydantic() -> None:
    program = "import sys, gateway.cli; print(sorted({'pyspark', 'pydantic', 'pyarrow', 'numpy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("command", ["run", "check", "status"])
def test_a_wrong_config_ends_with_2_and_its_problems(tmp_path: Path, command: str) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("max_vms", "max_vmz"))
    result = invoke(command, path)
    assert result.exit_code == 2
    assert f"{path}:6: cloud.max_vmz: unknown key" in result.output


def test_check_without_plan_says_ok(tmp_path: Path) -> None:
    path = written(tmp_path)
    result = invoke("check", path, "--no-plan")
    assert (result.exit_code, result.output) == (0, f"{path}: ok (1 queries)\n")


def test_the_schema_is_json_schema_of_the_file() -> None:
    schema = json.loads(invoke("schema").output)
    assert set(schema["properties"]) == {"gateway", "private", "cloud", "queries"}
    assert schema["additionalProperties"] is False


@pytest.fixture
def api(tmp_path: Path) -> Iterator[int]:
    """A server that answers as the API of a gateway with this test's state_dir."""
    status = {"queries": {"words": {"open_runs": 3}}}
    answers_of_get = {"/status": status, "/api/v1/status": {**status, "state_dir": str(tmp_path / "state")}}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path in answers_of_get else 404)
            self.end_headers()
            self.wfile.write(json.dumps(answers_of_get.get(self.path, {})).encode())

        def do_POST(self) -> None:
            answers = {
                "/queries/words/replay-dead-letters": b'{"replayed": 3}',
                "/certificates/rotate": b'{"renewed": ["home-1", "vm-1-1"], "later": ["vm-2-1"]}',
            }
            allowed = self.headers["Authorization"] == f"Bearer {TOKEN}"
            answer = answers.get(self.path) if self.headers["Content-Type"] == "application/json" and allowed else None
            self.send_response(200 if answer else 409)
            self.end_headers()
            self.wfile.write(answer or b"on their way already")

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


def test_status_prints_what_the_gateway_says(tmp_path: Path, api: int) -> None:
    result = invoke("status", written(tmp_path, port=api), "--json")
    assert result.exit_code == 0
    assert json.loads(result.output) == {"queries": {"words": {"open_runs": 3}}}


def test_status_without_a_gateway_says_how_to_start_one(tmp_path: Path) -> None:
    result = invoke("status", written(tmp_path, port=1))
    assert result.exit_code == 1
    assert "spillway run" in result.output


def test_dead_letters_are_replayed_by_the_running_gateway(tmp_path: Path, api: int) -> None:
    result = invoke("replay-dead-letters", written(tmp_path, port=api), "words")
    assert (result.exit_code, result.output) == (0, "words: 3 dead letters are being replayed\n")


def test_certificates_are_renewed_by_the_running_gateway(tmp_path: Path, api: int) -> None:
    result = invoke("certificates", "rotate", written(tmp_path, port=api))
    says = "the gateway and 2 engine hosts have new certificates; still to be refused by vm-2-1\n"
    assert (result.exit_code, result.output) == (0, says)
    nobody = invoke("certificates", "rotate", written(tmp_path, port=1))
    assert nobody.exit_code == 1
    assert "spillway run" in nobody.output


def test_a_replay_that_is_refused_or_has_no_gateway_ends_with_1(tmp_path: Path, api: int) -> None:
    path = written(tmp_path, port=api)
    path.write_text(path.read_text().replace("  words:", "  others:"))
    refused = invoke("replay-dead-letters", path, "others")
    assert (refused.exit_code, refused.output) == (1, "on their way already\n")
    nobody = invoke("replay-dead-letters", written(tmp_path, port=1), "words")
    assert nobody.exit_code == 1
    assert "spillway run" in nobody.output


@pytest.mark.parametrize(("mode", "says"), [(None, "no gateway has run with this config"), (0o644, "chmod 600")])
def test_an_action_without_a_usable_token_says_what_to_do(
    tmp_path: Path, api: int, mode: int | None, says: str
) -> None:
    path = written(tmp_path, port=api)
    token = tmp_path / "state" / "api-token"
    token.unlink() if mode is None else token.chmod(mode)
    result = invoke("replay-dead-letters", path, "words")
    assert result.exit_code == 1
    assert says in result.output


def test_a_replay_of_an_unknown_query_ends_with_2(tmp_path: Path) -> None:
    result = invoke("replay-dead-letters", written(tmp_path), "wrods")
    assert result.exit_code == 2
    assert 'has no query "wrods"; its queries are words' in result.output


def test_mail_is_generated_the_same_each_time(tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl.gz", tmp_path / "two.jsonl.gz"
    assert invoke("mail", one, "--count", "30", "--seed", "7").output == f"{one}: 30 mails\n"
    invoke("mail", two, "--count", "30", "--seed", "7")
    assert one.read_bytes() == two.read_bytes()
    lines = gzip.decompress(one.read_bytes()).splitlines()
    assert len(lines) == 30
    first = {"message_id", "sent", "sender", "to", "cc", "bcc", "subject", "body"}
    assert set(json.loads(lines[0])) == first
    assert json.loads(lines[0])["message_id"] != json.loads(lines[1])["message_id"]


def test_real_mail_becomes_json_lines(tmp_path: Path) -> None:
    box = tmp_path / "box.mbox"
    head = "Date: Thu, 1 Jan 2026 00:00:00 +0000\nFrom: a@x.org\nMessage-ID: <1>\nSubject: hi"
    box.write_text(f"From a@x.org Thu Jan  1 00:00:00 2026\n{head}\n\nbody\n\n")
    out = tmp_path / "new" / "mail.jsonl"
    result = invoke("mail", out, "--from", box)
    assert result.exit_code == 0
    (line,) = out.read_text().splitlines()
    assert (json.loads(line)["sender"], json.loads(line)["subject"]) == ("a@x.org", "hi")


def test_a_file_without_mail_is_a_failure_with_its_reason(tmp_path: Path) -> None:
    box = tmp_path / "box.mbox"
    box.write_text("From a@x.org Thu Jan  1 00:00:00 2026\nSubject: no date\n\nbody\n\n")
    result = invoke("mail", tmp_path / "mail.jsonl", "--from", box)
    assert result.exit_code == 1
    assert "no mail in it could be read; the first of 1 that could not" in result.output
    assert not (tmp_path / "mail.jsonl").exists()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["mail", "x.csv"], "ends with .jsonl or .jsonl.gz"),
        (["mail", "x.jsonl", "--from", "/nowhere.mbox"], "does not exist"),
        (["demo", "--mail", "/nowhere.mbox"], "does not exist"),
        (["demo", "--quick", "--wan", "70ms,50mbit"], "exclude each other"),
        (["demo", "--quick", "--cold"], "--quick and --cold exclude each other"),
        (["demo", "--runs", "0"], "runs"),
        (["run"], "Missing argument"),
        (["fly"], "No such command"),
    ],
)
def test_wrong_arguments_end_with_2(arguments: list[str], says: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert says in result.output


def test_a_mail_file_that_fails_midway_is_not_there(tmp_path: Path) -> None:
    def failing() -> Iterator[object]:
        yield from generate_mail(2, 1)
        raise OSError("disk is gone")

    with pytest.raises(OSError, match="gone"):
        write_mail(failing(), tmp_path / "mail.jsonl.gz")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def spillway(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gateway", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)


@pytest.mark.spark
def test_check_explains_what_would_be_sent(tmp_path: Path) -> None:
    done = spillway("check", written(tmp_path))
    assert done.returncode == 0
    assert "stateless: any share may go anywhere" in done.stdout
    assert "columns sent  id, body\n" in "\n".join(line.rstrip() for line in done.stdout.splitlines()) + "\n"
    assert "id starts with 'a'" in done.stdout


@pytest.mark.spark
def test_check_ends_with_2_and_the_line_when_spark_refuses_the_sql(tmp_path: Path) -> None:
    path = written(tmp_path, "SELECT nope FROM events")
    done = spillway("check", path)
    assert done.returncode == 2
    assert f"{path}:14: queries.words.sql: " in done.stderr
    assert "nope" in done.stderr
