"""The JSON Schema of the machine-readable result (docs/reference/result.schema.json)."""

from __future__ import annotations

from typing import Any, Final

from annotations.vocabulary import Delivery, Label, Within
from blazes.advice import Needs, Places
from blazes.coordination import Mode, Release, Scope, Vote
from blazes.repairs import Means
from blazes.report.json_result import SCHEMA_VERSION, SCHEMA_VERSION_ICDE14

STRING: Final = {"type": "string"}
STRINGS: Final = {"type": "array", "items": STRING}
_PLACE: Final = {
    "file": {"type": ["string", "null"]},
    "line": {"type": ["integer", "null"], "minimum": 1},
    "column": {"type": ["integer", "null"], "minimum": 1},
}
LABEL: Final = {"enum": [str(label) for label in Label]}
DELIVERY: Final = {"enum": [str(label) for label in Delivery]}
OF_DELIVERY: Final = ("delivery", "repaired_delivery", "withheld", "sinks")
"""Fields that `icde14`, for which every record comes once, does not have."""


def result_schema() -> dict[str, Any]:
    """A draft-07 schema; every object is closed, and a new field that is always there needs a new
    version.

    `derived` is only there where annotations were derived from code, `advice` only in what
    `analyze` and `plan` print, and `dedup` where a source that is waited for declares an `id`; what
    is said of delivery is not there under `icde14`.
    """
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Result of `blazes analyze --format json`",
        **_object(
            {
                "schema_version": {
                    "enum": [SCHEMA_VERSION_ICDE14, SCHEMA_VERSION],
                    "description": "1 under `icde14`, which knows nothing of delivery.",
                },
                "dataflow": STRING,
                "rules": {"enum": ["blazes", "icde14"]},
                "target": {**LABEL, "description": "The worst label tolerated at the sinks."},
                "verdict": {**LABEL, "description": "The highest severity at any sink."},
                "delivery": {**DELIVERY, "description": "The worst delivery at any sink."},
                "repaired_delivery": {**DELIVERY, "description": "The same under the plan."},
                "withheld": {
                    **STRINGS,
                    "description": "Paths whose partitions stay in quarantine where a record "
                    "comes again.",
                },
                "sinks": {**STRINGS, "description": "One sentence for each result."},
                "streams": _mapping(_stream(), "Stream name -> what was derived."),
                "plan": {
                    "type": "array",
                    "description": "What is done about repeats, then one entry for each "
                    "order-sensitive path.",
                    "items": {"oneOf": [_repair(), _seal(), _order(), _none()]},
                },
                "repaired": _mapping(LABEL, "Stream name -> label under the plan."),
                "inherited": {
                    "type": "array",
                    "description": "Nondeterminism that no coordination repairs.",
                    "items": _object({"origin": STRING, "label": LABEL, "reason": STRING}),
                },
                "advice": {
                    "type": "array",
                    "description": "For each ordered component, what would make its order "
                    "unnecessary. Absent from the results of compiled projects.",
                    "items": _advice(),
                },
                "derivations": {"type": "array", "items": _derivation()},
                "derived": {
                    "type": "array",
                    "description": "The paths whose annotations were derived from code, if any.",
                    "items": _derived(),
                },
                "warnings": {"type": "array", "items": _diagnostic()},
            }
        ),
    }
    for field in ("derived", "advice", *OF_DELIVERY):
        schema["required"].remove(field)
    return schema


def _advice() -> dict[str, Any]:
    """`blazes.advice_text.advice_object`."""
    change = {
        "description": "What is written into the file, or has to be changed in the code.",
        "oneOf": [
            _object({"change": {"const": "seal"}, "stream": STRING, "key": STRINGS}),
            _object({"change": {"const": "fd"}, "determinant": STRINGS, "dependent": STRINGS}),
            _object(
                {
                    "change": {"const": "query"},
                    "component": STRING,
                    "output": STRING,
                    "key": STRINGS,
                    "reason": STRING,
                }
            ),
        ],
    }
    alternative = _object(
        {
            "changes": {"type": "array", "items": change, "minItems": 1},
            "needs": {
                "enum": [needs.name.lower() for needs in Needs],
                "description": "Who has to do something: the producers of streams send "
                "punctuations, the owner of components changes a query, or nobody.",
            },
            "who": {**STRINGS, "description": "These streams, or these components."},
            "must_hold": {**STRINGS, "description": "What has to be true, in words."},
            "gives": _mapping(STRINGS, "Inner stream -> the key on which it is then sealed."),
            "cost": _cost(),
            "verdict": {**LABEL, "description": "What `analyze` then says of the dataflow."},
            "results": _mapping(
                _object({"before": LABEL, "after": LABEL}), "The results that get better."
            ),
            "orders": {
                "type": "integer",
                "minimum": 0,
                "description": "Paths of the whole plan that are then still ordered.",
            },
            "elsewhere": {**STRINGS, "description": "Other components of which less is ordered."},
        }
    )
    return _object(
        {
            "component": STRING,
            "order": {**_cost(), "description": "What the order of the plan costs."},
            "alternatives": {
                "type": "array",
                "description": "The cheapest first; each was applied and analysed again.",
                "items": alternative,
            },
            "counted_twice": {
                **STRINGS,
                "description": "Sources whose copies a seal would count, as they have no `id`.",
            },
        }
    )


def _cost() -> dict[str, Any]:
    places = {"enum": [place.value for place in Places]}
    return _object(
        {
            "waits_for": {**STRINGS, "description": "Streams whose slowest producer is awaited."},
            "holds": {
                "type": "array",
                "description": "What is kept of each open partition.",
                "items": _object(
                    {
                        "stream": STRING,
                        "key": STRINGS,
                        "columns": {
                            "type": ["array", "null"],
                            "items": STRING,
                            "description": "null: the file does not declare them.",
                        },
                        "bytes_per_record": {
                            "type": ["integer", "null"],
                            "minimum": 0,
                            "description": "Of the columns of fixed width.",
                        },
                        "varying": {**STRINGS, "description": "The other columns."},
                    }
                ),
            },
            "zookeeper": _object({"registrations": places, "look_ups": places, "places": places}),
            "latency": {**STRING, "description": "What a record waits for: until ..."},
        }
    )


def _derived() -> dict[str, Any]:
    return _object(
        {
            "component": STRING,
            "path": _object({"from": STRING, "to": STRING}),
            "annotation": STRING,
            "within": {"enum": [within.value for within in Within]},
            "nondeterministic": {"type": ["string", "null"]},
            "reasons": {
                "type": "array",
                "description": "What in the code made the annotation what it is.",
                "items": _object({"text": STRING, **_PLACE}),
            },
            "assumes": {
                "type": "array",
                "description": "What the annotation relies on, and what the code does not show.",
                "items": STRING,
            },
        }
    )


def _stream() -> dict[str, Any]:
    end = {"type": ["string", "null"]}
    schema = _object(
        {
            "from": {**end, "description": "Component.interface; null: an external source."},
            "to": {**end, "description": "Component.interface; null: an external sink."},
            "label": LABEL,
            "keys": {
                "type": "array",
                "items": STRINGS,
                "description": "What it is sealed on; empty unless the label is Seal.",
            },
            "rep": {"type": "boolean"},
            "delivery": DELIVERY,
            "id": {
                "type": ["array", "null"],
                "items": STRING,
                "description": "Attributes on which rows agree just if they are copies.",
            },
        }
    )
    for field in ("delivery", "id"):
        schema["required"].remove(field)
    return schema


def _repair() -> dict[str, Any]:
    return _object(
        {
            "strategy": {"enum": [means.value for means in Means]},
            "stream": STRING,
            "id": {"type": ["array", "null"], "items": STRING},
            "bound": {
                "description": "How long an id is remembered; null: for ever.",
                "oneOf": [
                    {"type": "null"},
                    _object({"seal": STRINGS}),
                    _object({"within": STRING}),
                ],
            },
            "cause": {"enum": ["D1", "D3", "D4", "D5", "D7", "D13", "D14"]},
            "component": {"type": ["string", "null"]},
            "path": {"type": ["string", "null"]},
            "alternatives": STRINGS,
        }
    )


def _entry(strategy: str, fields: dict[str, Any]) -> dict[str, Any]:
    return _object(
        {
            "component": STRING,
            "path": _object({"from": STRING, "to": STRING}),
            "annotation": STRING,
            "strategy": {"const": strategy},
            "inputs": {**STRINGS, "description": "The input interfaces that wait, sorted."},
            **fields,
            "cause": {
                "enum": ["R1", "R2", "R4", "S1", "S2", None],
                "description": "The rule that makes the path an origin; null where it is none.",
            },
        }
    )


def _seal() -> dict[str, Any]:
    gate = {"type": ["array", "null"], "items": STRING, "description": "null: unknown, `*`."}
    schema = _entry(
        "seal",
        {
            "key": STRINGS,
            "seals": _mapping(
                STRINGS,
                "Input interface -> the key it is sealed on. All are `key`, unless the inputs "
                "have no compatible key in common; `key` is then the union of theirs.",
            ),
            "gate": gate,
            "streams": {**STRINGS, "description": "The sealed streams that are waited for."},
            "vote": {"enum": [vote.value for vote in Vote]},
            "release": {"enum": [release.value for release in Release]},
            "dedup": {
                "type": "array",
                "description": "Sources whose known records are dropped before they count, if any.",
                "items": _object({"stream": STRING, "id": STRINGS}),
            },
        },
    )
    schema["required"].remove("dedup")
    return schema


def _order() -> dict[str, Any]:
    schema = _entry(
        "order",
        {
            "scope": {"enum": [scope.value for scope in Scope]},
            "mode": {"enum": [mode.value for mode in Mode]},
        },
    )
    schema["properties"]["alternatives"] = {
        "type": "array",
        "description": "Seals that would make the order unnecessary, the smallest first.",
        "items": _object(
            {
                "seal": STRINGS,
                "streams": {**STRINGS, "description": "Those that enter the component."},
                "sources": {**STRINGS, "description": "Those from outside that they are made of."},
            }
        ),
    }
    schema["required"].append("alternatives")
    schema["properties"]["refused"] = {
        "type": "array",
        "description": "Seals that the streams have and that are not enough for the code, if any.",
        "items": _object({"seal": STRINGS, "reason": STRING}),
    }
    return schema


def _none() -> dict[str, Any]:
    return _entry("none", {})


def _derivation() -> dict[str, Any]:
    step = _object(
        {
            "path": {**STRING, "description": "input->output"},
            "input": STRING,
            "annotation": STRING,
            "rule": STRING,
            "adds": STRINGS,
        }
    )
    return _object(
        {
            "component": STRING,
            "output": STRING,
            "steps": {"type": "array", "items": step},
            "rep": {"type": "boolean"},
            "reconciled": STRINGS,
            "label": STRING,
        }
    )


def _diagnostic() -> dict[str, Any]:
    return _object(
        {
            "code": STRING,
            "severity": {"enum": ["note", "warning", "error"]},
            "message": STRING,
            "remedy": STRING,
            **_PLACE,
        }
    )


def _mapping(values: dict[str, Any], description: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, "description": description}


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
