"""A gateway goes on, exactly once, from the state that the first version of Spillway left in the middle of its work."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engines.email.mailbox import Mail
from engines.query.code import former_hash
from infra.messages import OpenQuery
from tests.e2e.harness import Gateway, email_query, expected_rows, until, write_mail

# All that the first version wrote about a query; tests/query/test_identity.py has such files to the letter.
FILES = ("query.json", "runs.log", "dead-letters.jsonl")
IDENTITY = ("owner", "code_hash", "epoch")
POSITION = ("record", "part", "offset")
RECORD = {
    "head": ("type", "owner", "started_wall_s", "next_seq", "position"),
    "run": ("type", "first_seq", "last_seq", "start", "end", "arrival_wall_s", "disordered"),
}


def as_first_version(folder: Path) -> None:
    """Rewrite a query's part of a state_dir as the first version had written it."""
    for path in folder.iterdir():
        if path.name not in FILES:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    identity = json.loads((folder / "query.json").read_text())
    definition = OpenQuery(query="", epoch=0, schema_ddl=identity["schema_ddl"], sql=identity["sql"])
    identity["code_hash"] = former_hash(definition)
    (folder / "query.json").write_text(json.dumps(_only(identity, IDENTITY)))
    lines = (folder / "runs.log").read_bytes().splitlines()
    (folder / "runs.log").write_bytes(b"".join(_former(json.loads(line[9:])) for line in lines))


def _former(record: dict[str, Any]) -> bytes:
    kept = _only(record, RECORD[record["type"]])
    kept |= {name: _only(kept[name], POSITION) for name in ("position", "start", "end") if name in kept}
    body = json.dumps(kept).encode()
    return b"%08x %s\n" % (zlib.crc32(body), body)


def _only(fields: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: fields[name] for name in names if name in fields}


def test_state_of_the_first_version_goes_on(tmp_path: Path, state_dir: Path, mails: list[Mail]) -> None:
    write_mail(tmp_path / "mail.jsonl", mails[:2000])
    query = email_query(tmp_path, tmp_path / "mail.jsonl", "upgraded", replay={"rate": "300/s"})
    gateway = Gateway(tmp_path, state_dir, {"upgraded": query})
    gateway.start("--until-drained")
    until(lambda: len(gateway.parts("upgraded")) > 1, "two parts are there")
    gateway.kill()
    assert 0 < len(gateway.rows("upgraded")) < len(expected_rows(mails[:2000]))
    folder = state_dir / "queries" / "upgraded"
    as_first_version(folder)
    logged = (folder / "runs.log").read_bytes()
    gateway.run_until_drained()
    assert gateway.rows("upgraded") == expected_rows(mails[:2000])
    assert json.loads((folder / "query.json").read_text())["epoch"] == 2
    assert b'"shed"' not in logged
    assert b'"source"' not in logged
