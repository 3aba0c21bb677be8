"""What ``spillway schema`` prints and what docs/config.md says are what the loader accepts, in users' words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import create_model
from ruamel.yaml import YAML

from gateway.config.reference.examples import example_of, flow
from gateway.config.reference.meanings import key_of, meaning_of
from gateway.config.reference.page import page
from gateway.config.reference.schema import json_schema, section_named, sections
from gateway.config.words.fields import Section

ROOT = Path(__file__).parents[2]
SCHEMA = json_schema()
KEYS = [(name, key, node) for name, section in sections(SCHEMA).items() for key, node in section["properties"].items()]
IDS = [f"{name}.{key}" for name, key, _ in KEYS]
UNIT_SUFFIX = re.compile(r"_(s|bytes|ddl|bits_per_s|per_s)$")


def validator(node: dict[str, Any]) -> Draft202012Validator:
    """A validator of one part of the schema."""
    return Draft202012Validator({"$defs": SCHEMA["$defs"], **node})


def fields() -> Iterator[tuple[type[Section], str, str]]:
    """Each section with the Python name and the key of each field."""
    for name in sections(SCHEMA):
        section = section_named(name)
        yield from ((section, field, key_of(field, info)) for field, info in section.model_fields.items())


def test_the_schema_is_a_schema_and_covers_the_whole_file() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert set(SCHEMA["properties"]) == {"gateway", "private", "cloud", "queries"}
    assert len(KEYS) > 180


def test_keys_are_those_of_the_file() -> None:
    inner = {(section.__name__, name) for section, name, key in fields() if name != key}
    assert len(inner) > 30
    assert [(section, key) for section, key, _ in KEYS if (section, key) in inner] == []
    gateway = SCHEMA["$defs"]["GatewayConfig"]["properties"]
    assert {"slot", "orphan_after", "memory", "lease"} <= set(gateway)


def test_no_text_of_the_schema_names_a_field_as_it_is_called_inside() -> None:
    inner = {name for _, name, key in fields() if name != key and UNIT_SUFFIX.search(name)}
    texts = [node["description"] for _, _, node in KEYS] + [part["description"] for part in sections(SCHEMA).values()]
    assert "slot_s" in inner
    assert [(name, text) for text in texts for name in inner if re.search(rf"\b{name}\b", text)] == []


def test_defaults_are_written_as_people_write_them() -> None:
    def default(section: str, key: str) -> object:
        return SCHEMA["$defs"][section]["properties"][key].get("default")

    assert default("GatewayConfig", "slot") == "1s"
    assert default("GatewayConfig", "memory") == "512MiB"
    assert default("SwitchingConfig", "keep_vm_bytes") == "1MB"
    assert default("DeadLettersConfig", "most") == "20%"
    assert default("OnFailureConfig", "restart") == "5s..5m"
    assert default("PlannerPolicyConfig", "cycles") == ["24h"]
    assert default("QueryConfig", "policy") == {"type": "reactive"}
    assert default("QueryConfig", "order") == {}
    assert default("GatewayConfig", "fleet") is None
    assert SCHEMA["properties"]["cloud"]["default"] == "none"


@pytest.mark.parametrize(("name", "key", "node"), KEYS, ids=IDS)
def test_a_default_matches_its_own_schema_and_the_key_has_a_meaning(name: str, key: str, node: dict[str, Any]) -> None:
    assert len(node["description"]) > 10, f"explain {key} in the docstring of {name}"
    if "default" in node:
        assert [error.message for error in validator(node).iter_errors(node["default"])] == []


@pytest.mark.parametrize(("name", "key", "node"), KEYS, ids=IDS)
def test_an_example_is_right(name: str, key: str, node: dict[str, Any], tmp_path: Path) -> None:
    example = example_of(node)
    if example is None:
        assert "$ref" in str(node), f"{name}.{key} needs an example: Field(examples=[…])"
        return
    assert [error.message for error in validator(node).iter_errors(example)] == []
    (read,) = YAML(typ="safe").load(f"{{{key}: {flow(example)}}}").values()
    assert (read.isoformat() if isinstance(read, datetime) else read) == example
    section = section_named(name)
    inner, field = next((n, f) for n, f in section.model_fields.items() if key_of(n, f) == key)
    definition: Any = (field.annotation, field)
    for file in ("orders.jsonl", "customers.csv"):
        (tmp_path / file).touch()
    alone = create_model("alone", __base__=Section, **{inner: definition})
    alone.model_validate({key: example}, context={"folder": tmp_path})


def test_a_wrong_value_does_not_pass() -> None:
    slot = SCHEMA["$defs"]["GatewayConfig"]["properties"]["slot"]
    assert [list(validator(slot).iter_errors(wrong)) == [] for wrong in (1, "1", "1 parsec")] == [False] * 3


def test_a_key_that_no_docstring_explains_has_an_empty_meaning() -> None:
    class ExplainedSection(Section):
        """A section.

        Attributes:
            told_s: its meaning
                in two lines.
        """

        told_s: int
        untold: int = 0

    assert meaning_of(ExplainedSection).summary == "A section."
    assert meaning_of(ExplainedSection).keys == {"told_s": "its meaning in two lines.", "untold": ""}


def test_the_page_is_what_the_models_say() -> None:
    assert (ROOT / "docs" / "config.md").read_text() == page(), "run: make docs"


def test_each_key_is_on_the_page_in_a_row_with_all_its_cells() -> None:
    rows = [line for line in page().splitlines() if line.startswith("| `")]
    assert len(rows) == len(KEYS)
    assert {len(re.split(r"(?<!\\)\|", row)) for row in rows} == {7}


def test_links_within_the_page_lead_somewhere() -> None:
    text = page()
    anchors = [
        re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", line.lstrip("#")).strip().lower())
        for line in text.splitlines()
        if line.startswith("#")
    ]
    assert len(anchors) == len(set(anchors))
    links = re.findall(r"\]\(#([^)]+)\)", text)
    assert len(links) > 60
    assert set(links) <= set(anchors)
