"""Findings as SARIF 2.1.0, which code hosts and editors show beside the lines they are about."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from annotations.dataflow import Position
from annotations.diagnostics import Diagnostic, Severity
from blazes.coordination import Plan
from blazes.core.rules import rule_text
from blazes.report.findings import Finding, finding
from blazes.report.index import Index

SCHEMA: Final = "https://json.schemastore.org/sarif-2.1.0.json"
LEVELS: Final = {Severity.NOTE: "note", Severity.WARNING: "warning", Severity.ERROR: "error"}
SEALED: Final = {
    "id": "seal",
    "shortDescription": {"text": "A component waits for sealed partitions"},
    "fullDescription": {"text": "Its result is deterministic because it waits for a seal."},
}


def log(plan: Plan, *, warnings: Iterable[Diagnostic] = ()) -> dict[str, Any]:
    """The coordinated components of a plan and the warnings of its file."""
    index = Index.of(plan)
    components = [finding(index, name) for name in index.need_coordination()]
    rules = {
        rule["id"]: rule
        for component in components
        for rule in _rules_of(component, plan.analysis.rules)
    }
    results = [_result(component) for component in components]
    for diagnostic in warnings:
        rules[diagnostic.code.id] = code_of(diagnostic)
        results.append(_diagnostic(diagnostic))
    return log_of(rules, results)


def problems(diagnostics: Iterable[Diagnostic]) -> dict[str, Any]:
    """The mistakes of a file that was refused."""
    listed = list(diagnostics)
    rules = {diagnostic.code.id: code_of(diagnostic) for diagnostic in listed}
    return log_of(rules, [_diagnostic(diagnostic) for diagnostic in listed])


def dumps(sarif: dict[str, Any]) -> str:
    """A log as JSON text."""
    return json.dumps(sarif, ensure_ascii=False) + "\n"


def log_of(rules: dict[str, Any], results: list[dict[str, Any]]) -> dict[str, Any]:
    """A log of these results."""
    order = sorted(rules)
    for result in results:
        result["ruleIndex"] = order.index(result["ruleId"])
    driver = {"name": "blazes", "rules": [rules[id] for id in order]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _rules_of(component: Finding, rule_set: str) -> Iterator[dict[str, Any]]:
    for cause in dict.fromkeys(entry.cause for entry in component.entries):
        if cause is None:
            yield dict(SEALED)
        else:
            yield {"id": cause, "shortDescription": {"text": rule_text(cause, rule_set)}}


def _result(component: Finding) -> dict[str, Any]:
    cause = next((entry.cause for entry in component.entries if entry.cause), None)
    cheaper = f" Cheaper: {'; or '.join(component.cheaper)}." if component.cheaper else ""
    text = f"{component.title}. {' '.join((*component.why, *component.does))}{cheaper}"
    position = (
        next((entry.path.position for entry in component.entries), None) or component.position
    )
    return {
        "ruleId": cause or SEALED["id"],
        "level": "warning" if component.ordered else "note",
        "message": {"text": text},
        "locations": _locations(position),
        "relatedLocations": [
            location(path.position) | {"message": {"text": f"{path}: {path.annotation}"}}
            for path in component.paths
            if path.position
        ],
        "properties": {
            "component": component.component,
            "label": str(component.worst),
            "plan": list(component.does),
        },
    }


def code_of(diagnostic: Diagnostic) -> dict[str, Any]:
    """A code as a rule of the log."""
    code = diagnostic.code
    return {
        "id": code.id,
        "shortDescription": {"text": code.title},
        "fullDescription": {"text": code.why},
        "help": {"text": code.remedy},
        "defaultConfiguration": {"level": LEVELS[code.severity]},
    }


def _diagnostic(diagnostic: Diagnostic) -> dict[str, Any]:
    remedy = diagnostic.remedy or diagnostic.code.remedy
    return {
        "ruleId": diagnostic.code.id,
        "level": LEVELS[diagnostic.code.severity],
        "message": {"text": f"{diagnostic.message}. {remedy}"},
        "locations": _locations(diagnostic.position),
    }


def _locations(position: Position | None) -> list[dict[str, Any]]:
    return [location(position)] if position else []


def location(position: Position) -> dict[str, Any]:
    """A place as a location of the log."""
    path = Path(position.file)
    uri = path.as_uri() if path.is_absolute() else quote(os.fsencode(path.as_posix()))
    region = {"startLine": position.line, "startColumn": position.column}
    return {"physicalLocation": {"artifactLocation": {"uri": uri}, "region": region}}
