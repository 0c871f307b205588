"""The JSON Schema and the decoder are made out of the same tables: they agree on structure."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from jsonschema import Draft7Validator

from annotations.diagnostics import BadInput, Findings
from annotations.file import loads
from annotations.file.keys import RECORDS
from annotations.file.python_reference import page as python_page
from annotations.file.reference import page
from annotations.file.schema import json_schema, text
from annotations.positions import List, Map, Node, Scalar, read_tree
from tests.annotations import fuzzing
from tests.annotations.test_diagnostic_cases import CASES

COMMITTED = Path(__file__).parents[2] / "docs" / "reference" / "blazes.schema.json"
REFERENCE = COMMITTED.with_name("file-format.md")
LISTINGS = sorted((Path(__file__).parent / "listings").glob("*.yaml"))
VALIDATOR = Draft7Validator(json_schema())
STRUCTURAL = {"BLZ010", "BLZ011", "BLZ012"}
"""What a schema can see: unknown keys, values of another type, missing keys."""


def instance(node: Node) -> Any:
    """The node as an editor hands it to a validator: plain words by the core schema of YAML 1.2."""
    if isinstance(node, Map):
        return {key: instance(value) for key, (_, value) in node.entries.items()}
    if isinstance(node, List):
        return [instance(item) for item in node.items]
    assert isinstance(node, Scalar)
    return core(node.text) if node.plain else node.text


def core(word: str) -> Any:
    if word in ("", "~", "null", "Null", "NULL"):
        return None
    if word.lower() in ("true", "false") and word in (word.lower(), word.upper(), word.title()):
        return word.lower() == "true"
    if re.fullmatch(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", word, re.ASCII):
        return int(word, 0) if word[:2] in ("0o", "0x") else int(word)
    if re.fullmatch(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", word, re.ASCII):
        return float(word)
    return word


def of_text(yaml: str) -> Any:
    node = read_tree(yaml, Findings("x", yaml))
    return None if node is None else instance(node)


def test_the_committed_copy_is_what_the_tables_say(update_goldens: bool) -> None:
    if update_goldens:
        COMMITTED.write_text(text(), encoding="utf-8")
    assert COMMITTED.read_text(encoding="utf-8") == text()


def test_the_schema_is_a_draft_07_schema() -> None:
    Draft7Validator.check_schema(json_schema())


def test_every_record_is_defined_once_and_every_reference_leads_somewhere() -> None:
    schema = json_schema()
    assert len({record.definition_name for record in RECORDS}) == len(RECORDS)
    references = set(re.findall(r'"\$ref": "#/definitions/([^"]+)"', json.dumps(schema)))
    assert references == schema["definitions"].keys()


def test_every_key_is_described() -> None:
    for record in RECORDS:
        for key, value in record.definition()["properties"].items():
            assert value["description"], f"{record.name}: {key}"


@pytest.mark.parametrize("file", LISTINGS, ids=lambda file: file.name)
def test_the_listings_are_valid(file: Path) -> None:
    VALIDATOR.validate(of_text(file.read_text(encoding="utf-8")))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fuzzing.texts(fuzzing.dataflows()))
def test_what_the_decoder_accepts_is_valid(yaml: str) -> None:
    _accepted_is_valid(yaml)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fuzzing.texts(fuzzing.mutated()))
def test_what_the_decoder_accepts_of_spoilt_files_is_valid(yaml: str) -> None:
    _accepted_is_valid(yaml)


def _accepted_is_valid(yaml: str) -> None:
    try:
        loads(yaml)
    except BadInput:
        return
    VALIDATOR.validate(of_text(yaml))


IN_NO_JSON = "BLZ011 a key that is no word"
WRONG = [case for case in CASES if case.codes & STRUCTURAL and case.title != IN_NO_JSON]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.title)
def test_what_is_structurally_wrong_is_refused_by_both(case: Any) -> None:
    assert not VALIDATOR.is_valid(of_text(case.text))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.definition_name)
def test_an_unknown_key_is_refused_in_every_record(record: Any) -> None:
    schema = {**json_schema(), **record.schema()}
    for key in ("if", "then", "else"):
        schema.pop(key, None)
    errors = [error.validator for error in Draft7Validator(schema).iter_errors({"unknown": 1})]
    assert "additionalProperties" in errors


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.title)
def test_a_case_that_the_decoder_accepts_is_valid(case: Any) -> None:
    try:
        loads(case.text, variants=case.variants)
    except BadInput:
        return
    VALIDATOR.validate(of_text(case.text))


def test_the_committed_reference_page_is_what_the_tables_say(update_goldens: bool) -> None:
    if update_goldens:
        REFERENCE.write_text(page(), encoding="utf-8")
    assert REFERENCE.read_text(encoding="utf-8") == page()


def test_the_reference_of_declarations_in_python_is_current() -> None:
    """Write it with `python -m annotations.file.python_reference > docs/reference/python.md`."""
    written = (REFERENCE.parent / "python.md").read_text(encoding="utf-8")
    assert written == python_page()


def test_the_examples_of_the_reference_page_load() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", page(), re.DOTALL)
    dataflows = [loads(example) for example in examples if not example.startswith("#")]
    assert [[warning.code.id for warning in warnings] for _, warnings in dataflows] == [
        [],
        ["BLZ031"],
    ]
