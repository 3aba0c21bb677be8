"""Every code block of the documentation is right: configs load, commands exist, Python compiles."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML
from typer.core import TyperGroup
from typer.main import get_command

from gateway.cli import main
from gateway.config import load
from gateway.config.queries import QueryConfig
from gateway.config.reference.schema import json_schema
from gateway.simulate.graphs.reading import is_graphs
from gateway.simulate.parameters.calibration import Calibration, read_calibration
from tests.support.docs_inputs import make_inputs
from tests.support.documents import ROOT, Block, blocks, documents, filled

Document = dict[str, Any]
VALIDATOR = Draft202012Validator(json_schema())
SECTIONS = {"gateway", "private", "cloud", "queries"}
OF_A_QUERY = {field.alias or name for name, field in QueryConfig.model_fields.items()}
# YAML and JSON of other programs.
FOREIGN: Final = {"scrape_configs", "image"}
TERMS: Final = {
    "max_vms": 1,
    "billing": {"usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
    "budget": {"usd_per_day": 5},
}
OF_PROCESSES: Final = {
    **TERMS,
    "provider": "process",
    "boot": "15s",
    "billing": {"period": "60s", "minimum": "60s", "usd_per_hour": 0.1, "usd_per_gb_sent": 0.09},
}
OF_EC2: Final = {"region": "eu-west-1", "credentials": {"key": "a", "secret": "b"}, "sizes": ["m7i.large"]}
GRAPHS: Final = {"graphs"}
PARAMETERS: Final = set(Calibration.model_fields) - {"queries"}
"""Keys of a file of ``spillway simulate --parameters``."""
_KEYS: Final = {block: set(YAML(typ="safe").load(block.text)) for block in blocks("yaml")}
PARAMETERS_BLOCKS = [block for block, keys in _KEYS.items() if keys & PARAMETERS]
YAML_BLOCKS = [block for block, keys in _KEYS.items() if not keys & (FOREIGN | GRAPHS | PARAMETERS)]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.yaml") if not is_graphs(path))
LANGUAGES: Final = {"yaml", "console", "sh", "python", "json", "sql", "mermaid", "text", ""}
COMMAND = get_command(main)


class AnyVariable(dict[str, str]):
    """An environment in which every variable is set."""

    def get(self, _name: str, default: object = None) -> Any:
        """Return the default of a variable, else some value."""
        return default if isinstance(default, str) else "value"


def whole(document: Document) -> Document:
    """A config in which what a document leaves out is filled in."""
    if set(document) <= OF_A_QUERY:
        document = {"queries": {"shown": document}}
    assert set(document) <= SECTIONS, f"neither a config nor a query: {', '.join(document)}"
    queries = {
        name: {
            **({} if query.keys() & {"source", "sources"} else {"source": {"type": "file", "path": "events.jsonl"}}),
            **({} if query.keys() & {"schema", "sources"} else {"schema": "id STRING, customer STRING, at TIMESTAMP"}),
            **({} if query.keys() & {"sql", "function"} else {"sql": "SELECT * FROM events"}),
            "sink": {"type": "file", "path": f"out/{name}"},
            "qos": {"latency": "2s"},
            **query,
        }
        for name, query in document.get("queries", {"shown": {}}).items()
    }
    if "cloud" in document:
        left_out = {"ec2": {**TERMS, **OF_EC2}, None: OF_PROCESSES}.get(document["cloud"].get("provider"), TERMS)
        document = {**document, "cloud": {**left_out, **document["cloud"]}}
    return {**document, "gateway": {"state_dir": "./state", **document.get("gateway", {})}, "queries": queries}


@pytest.mark.parametrize("block", YAML_BLOCKS, ids=str)
def test_a_config_loads_and_matches_the_schema(block: Block, tmp_path: Path) -> None:
    document = whole(YAML(typ="safe").load(filled(block.text)))
    make_inputs(document, tmp_path)
    path = tmp_path / "shown.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe").dump(document, file)
    assert load(path, AnyVariable()).queries
    assert [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)] == []


@pytest.mark.parametrize("block", PARAMETERS_BLOCKS, ids=str)
def test_parameters_of_the_simulator_load(block: Block, tmp_path: Path) -> None:
    path = tmp_path / "parameters.yaml"
    path.write_text(block.text, encoding="utf-8")
    assert read_calibration(path).model_fields_set - {"queries"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_matches_the_schema(path: Path) -> None:
    document = YAML(typ="safe").load(filled(path.read_text()))
    assert [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(document)] == []


def test_a_wrong_example_would_not_match() -> None:
    document = YAML(typ="safe").load(filled(EXAMPLES[0].read_text()))
    document["gateway"]["slot_s"] = 1
    assert [error.json_path for error in VALIDATOR.iter_errors(document)] == ["$.gateway"]


def shell_lines(block: Block) -> Iterator[str]:
    """Yield the commands of a block, each in one line."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        command = line.removeprefix("$ ") if block.language == "console" and line.startswith("$ ") else ""
        yield from [command] if command else [line] if block.language == "sh" else []


def arguments(line: str) -> list[str]:
    """The words after ``spillway`` up to a pipe, a redirection or a comment; none if the line calls something else."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    while words and (words[0] == "sudo" or re.match(r"[A-Z_]+=", words[0])):
        words = words[1:]
    if not words or words[0].rpartition("/")[2] != "spillway":
        return []
    rest = words[1:]
    end = next((n for n, word in enumerate(rest) if set(word) <= set("|&;<>()")), len(rest))
    return rest[:end]


def parse(words: list[str]) -> None:
    """Let the command line's own parser read the words, without running anything."""
    if "--help" in words:  # it would print and exit
        words = [word for word in words if word != "--help"] or ["schema"]
    group, context = COMMAND, COMMAND.make_context("spillway", list(words))
    rest = words
    while isinstance(group, TyperGroup):
        name, found, rest = group.resolve_command(context, rest)
        assert found is not None
        if isinstance(found, TyperGroup):
            context = found.make_context(name, list(rest), parent=context)
            group = found
        else:
            found.make_context(name, list(rest), parent=context)
            return


CALLS = [(block, line) for block in blocks("console", "sh") for line in shell_lines(block) if arguments(line)]


@pytest.mark.parametrize(("block", "line"), CALLS, ids=[f"{block}: {line}" for block, line in CALLS])
def test_a_command_can_be_parsed(block: Block, line: str) -> None:
    parse(arguments(line))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["runs", "a.yaml"], "No such command"),
        (["run", "a.yaml", "--until"], "No such option"),
        (["check"], "Missing parameter"),
    ],
)
def test_a_wrong_command_cannot_be_parsed(words: list[str], says: str) -> None:
    with pytest.raises(Exception, match=says):
        parse(words)


def test_commands_in_sentences_exist_with_their_options() -> None:
    wrong = []
    for path in documents():
        for text in re.findall(r"`spillway ([a-z][^`]*)`", path.read_text()):
            words = text.replace("[", " ").replace("]", " ").split()
            command = COMMAND.commands.get(words[0]) if isinstance(COMMAND, TyperGroup) else None
            options = set() if command is None else {name for param in command.params for name in param.opts}
            asked = {word.partition("=")[0] for word in words if word.startswith("--")}
            if command is None or not asked <= options:
                wrong.append(f"{path.relative_to(ROOT)}: spillway {text}")
    assert wrong == []


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    called = [
        match
        for block in blocks("console", "sh")
        for line in shell_lines(block)
        for match in re.findall(r"^make ([a-z-]+)", line)
    ]
    assert len(called) >= 2
    assert set(called) <= targets


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", blocks("json"), ids=str)
def test_json_can_be_read(block: Block) -> None:
    assert json.loads(block.text)


def test_no_block_is_in_a_language_that_is_not_checked() -> None:
    fences = [line for path in documents() for line in path.read_text().splitlines() if line.lstrip().startswith("```")]
    every = blocks(*LANGUAGES)
    assert len(fences) == 2 * len(every)
    assert len(YAML_BLOCKS) > 20
    assert [str(block) for block in every if not block.language and "spillway" in block.text.split()[0:1]] == []


def test_there_are_no_blocks_without_a_fence() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in documents()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.match(r" {4,}(\.venv/bin/)?spillway ", line)
    ]
    assert found == [], "put them between ```console and ```"
