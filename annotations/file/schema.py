"""JSON Schema (draft-07) of the dataflow file, for editors that complete and validate.

Made out of the key tables that the decoder reads by. Write the committed copy with
`python -m annotations.file.schema > docs/reference/blazes.schema.json`.
"""

from __future__ import annotations

import json
from typing import Any

from annotations.file.keys import COMPONENT, DATAFLOW, PATHS, RECORDS, SECTIONS
from annotations.file.records import described


def json_schema() -> dict[str, Any]:
    """The schema of a file: either the full form, or the listing of the paper.

    Whatever `yaml_file.load` accepts is valid. The schema knows keys and types; that names,
    attributes and variants exist, and that words are quoted where YAML needs it, only the decoder
    checks.
    """
    listing = {
        "type": "object",
        "description": "Components, each with the paths of its variants below it, by name.",
        "properties": {key: described(entry) for key, entry in SECTIONS.items()},
        "additionalProperties": {"anyOf": [COMPONENT.schema(), PATHS.schema()]},
        "minProperties": 1,
    }
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Blazes dataflow",
        "description": DATAFLOW.description,
        "if": {"required": ["components"]},
        "then": DATAFLOW.schema(),
        "else": {"$ref": "#/definitions/listing"},
        "definitions": {
            DATAFLOW.definition_name: DATAFLOW.definition(),
            "listing": listing,
            **{record.definition_name: record.definition() for record in RECORDS},
        },
    }


def text() -> str:
    """The schema as it is committed."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    print(text(), end="")
