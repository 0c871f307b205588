"""The findings about the claims: a verdict for each, with the evidence."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from annotations.dataflow import Dataflow
from blazes.verify.claims import KINDS, Claim
from blazes.verify.experiment import Case, Way
from blazes.verify.records import Item, Row
from blazes.verify.weights import Weight

SCHEMA_VERSION: Final = 2


class Status(enum.Enum):
    """The verdict on a claim. There is no "proved"."""

    REFUTED = "refuted"
    STANDS = "not refuted"
    UNTESTED = "not tested"
    """It claims something, and nobody knows whether that holds."""
    UNTESTABLE = "nothing to test"
    """It claims nothing that could be wrong."""


class Result(enum.Enum):
    """The verdict on all claims together."""

    REFUTED = "refuted"
    INCONCLUSIVE = "inconclusive"
    """None was refuted, and not all were tested."""
    STANDS = "not refuted"


@dataclass(frozen=True, slots=True)
class Difference:
    """Two outcomes that should be one."""

    columns: tuple[str, ...]
    only_first: tuple[Row, ...]
    only_second: tuple[Row, ...]
    both: int
    """Rows that both have."""


@dataclass(frozen=True, slots=True)
class Refutation:
    """The smallest input that was found, the two ways it was run, and what came of them."""

    case: Case
    ways: tuple[Way, Way]
    difference: Difference
    found_by: str
    """The engine that found it."""
    confirmed_by: str
    """The engine that confirmed it: always Spark."""
    recorded: bool = False
    """True where the records are from the data, not generated."""
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Input interface -> names of its columns."""

    @property
    def items(self) -> tuple[Item, ...]:
        """The records."""
        return self.case.items


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one claim."""

    claim: Claim
    status: Status
    tries: int = 0
    """Cases in which the component put something out."""
    engine: str = ""
    """What ran them."""
    reason: str = ""
    """Why it was not tested."""
    refutation: Refutation | None = None
    weight: Weight = Weight.NOTHING
    """What rests on the claim."""


@dataclass(frozen=True, slots=True)
class Report:
    """All verdicts on a dataflow."""

    dataflow: Dataflow
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    """Why a component ran on Spark alone, and the like."""
    seed: int
    seconds: float

    def count(self, status: Status) -> int:
        """How many claims have that verdict."""
        return sum(finding.status is status for finding in self.findings)

    @property
    def result(self) -> Result:
        """The verdict on all of them."""
        if self.refuted:
            return Result.REFUTED
        return Result.INCONCLUSIVE if self.count(Status.UNTESTED) else Result.STANDS

    @property
    def refuted(self) -> tuple[Finding, ...]:
        """The refuted claims."""
        return tuple(finding for finding in self.findings if finding.status is Status.REFUTED)


def compare(
    columns: tuple[str, ...], first: frozenset[Row], second: frozenset[Row]
) -> Difference | None:
    """How two sets of rows differ; None where they do not."""
    if first == second:
        return None
    from blazes.verify.records import sort_key

    return Difference(
        columns,
        tuple(sorted(first - second, key=sort_key)),
        tuple(sorted(second - first, key=sort_key)),
        len(first & second),
    )


def to_json(report: Report) -> dict[str, Any]:
    """The report as JSON data; the same things as the text says."""
    return {
        "schema_version": SCHEMA_VERSION,
        "dataflow": report.dataflow.name,
        "seed": report.seed,
        "seconds": round(report.seconds, 1),
        "result": report.result.value,
        "counts": {status.value: report.count(status) for status in Status},
        "findings": [finding_object(finding) for finding in report.findings],
        "notes": list(report.notes),
    }


def finding_object(finding: Finding) -> dict[str, Any]:
    """One verdict as JSON data."""
    claim = finding.claim
    operator, path, at = claim.operator, claim.path, claim.position
    return {
        "kind": claim.kind.value,
        "claim": claim.text,
        "component": operator.component if operator else None,
        "output": operator.output if operator else None,
        "path": {"from": path.source, "to": path.target} if path else None,
        "annotation": str(path.annotation) if path else None,
        "fd": str(claim.fd) if claim.fd else None,
        "position": str(at) if at else None,
        "verdict": finding.status.value,
        "rests_on_it": finding.weight.name.lower(),
        "tries": finding.tries,
        "tried": tried_as(finding),
        "engine": finding.engine or None,
        "reason": finding.reason or None,
        "refutation": refutation_object(finding.refutation) if finding.refutation else None,
    }


def tried_as(finding: Finding) -> str | None:
    """The sort of try that the claim was put to; None where there was none."""
    return KINDS[finding.claim.kind].tried if finding.tries else None


def refutation_object(refutation: Refutation) -> dict[str, Any]:
    """The evidence as JSON data; `ways` are micro-batches of places in `records`, from 1."""
    from blazes.verify.records import plain

    def objects(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
        names = refutation.difference.columns
        return [dict(zip(names, map(plain, row), strict=False)) for row in rows]

    return {
        "records": [
            {
                "interface": item.interface,
                "times": item.times,
                "values": dict(
                    zip(refutation.columns[item.interface], map(plain, item.row), strict=True)
                ),
            }
            for item in refutation.items
        ],
        "ways": [[[n + 1 for n in batch] for batch in way.batches] for way in refutation.ways],
        "only_first": objects(refutation.difference.only_first),
        "only_second": objects(refutation.difference.only_second),
        "both": refutation.difference.both,
        "found_by": refutation.found_by,
        "confirmed_by": refutation.confirmed_by,
        "recorded": refutation.recorded,
    }
