"""The machine-readable result: one object, stable and versioned.

Its shape is `docs/reference/result.schema.json` (`blazes.report.result_schema`). Attributes, keys
and inputs are sorted; streams, entries and derivations keep the order of the dataflow.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from annotations.dataflow import Dataflow, Path
from annotations.diagnostics import Diagnostic
from annotations.vocabulary import Annotation, Delivery, Key
from blazes.advice import Advisor
from blazes.analysis import Derivation
from blazes.coordination import Entry, Plan, Strategy
from blazes.core.deliveries import Delivered
from blazes.core.rules import BLAZES
from blazes.repairs import Repair
from blazes.report.results import results

SCHEMA_VERSION: Final = 2
SCHEMA_VERSION_ICDE14: Final = 1
"""Of the paper's rules, under which every record comes once: without anything about delivery."""


def to_json(
    plan: Plan, *, warnings: Iterable[Diagnostic] = (), advisor: Advisor | None = None
) -> dict[str, Any]:
    """An analysis and its plan as JSON data; with `advisor`, also what would be cheaper."""
    analysis = plan.analysis
    dataflow = analysis.dataflow
    knows_delivery = analysis.rules == BLAZES
    return {
        "schema_version": SCHEMA_VERSION if knows_delivery else SCHEMA_VERSION_ICDE14,
        "dataflow": dataflow.name,
        "rules": analysis.rules,
        "target": str(plan.target),
        "verdict": str(analysis.verdict),
        **(_delivery(plan) if knows_delivery else {}),
        "streams": {
            name: {
                "from": str(stream.producer) if stream.producer else None,
                "to": str(stream.consumer) if stream.consumer else None,
                "label": str(analysis.labels[name].label),
                "keys": analysis.labels[name].sorted_keys,
                "rep": analysis.rep[name],
                **(_delivered(analysis.deliveries.get(name)) if knows_delivery else {}),
            }
            for name, stream in dataflow.streams.items()
        },
        "plan": [
            *(repair_object(repair) for repair in plan.repairs.items),
            *(entry_object(entry) for entry in plan.entries),
        ],
        "repaired": {name: str(label.label) for name, label in plan.repaired.items()},
        "inherited": [
            {"origin": origin.origin, "label": str(origin.label), "reason": origin.reason}
            for origin in plan.inherited
        ],
        **({} if advisor is None else {"advice": _advice(advisor)}),
        "derivations": [derivation_object(derivation) for derivation in analysis.derivations],
        **_derived(dataflow),
        "warnings": [_warning(warning) for warning in warnings],
    }


def _advice(advisor: Advisor) -> list[dict[str, Any]]:
    """The repairs of each ordered component in place of its order."""
    from blazes.advice_text import advice_object

    advices = (advisor.of(component) for component in advisor.components)
    return [advice_object(advice) for advice in advices if advice is not None]


def _delivery(plan: Plan) -> dict[str, Any]:
    """The verdict about records that come again, for the dataflow as one."""
    leaving = [
        stream.name for stream in plan.analysis.dataflow.streams.values() if not stream.consumer
    ]
    names = leaving or list(plan.analysis.dataflow.streams)
    return {
        "delivery": str(_worst(plan.analysis.deliveries, names)),
        "repaired_delivery": str(_worst(plan.deliveries, names)),
        "withheld": list(plan.analysis.withheld),
        "sinks": [result.sentence for result in results(plan)],
    }


def _worst(deliveries: Mapping[str, Delivered], names: Iterable[str]) -> Delivery:
    labels = (deliveries[name].label for name in names if name in deliveries)
    return max(labels, default=Delivery.ONCE)


def _delivered(delivered: Delivered | None) -> dict[str, Any]:
    delivered = delivered or Delivered()
    return {"delivery": str(delivered.label), "id": _sorted(delivered.id)}


def _sorted(key: Key | None) -> list[str] | None:
    return None if key is None else sorted(key)


def repair_object(repair: Repair) -> dict[str, Any]:
    """One item of the plan against repeats."""
    bound = repair.bound
    return {
        "strategy": repair.means.value,
        "stream": repair.stream,
        "id": _sorted(repair.id),
        "bound": None
        if bound is None
        else {"seal": sorted(bound.seal)}
        if bound.seal is not None
        else {"within": bound.within},
        "cause": repair.cause,
        "component": repair.component,
        "path": repair.path,
        "alternatives": list(repair.alternatives),
    }


def _derived(dataflow: Dataflow) -> dict[str, Any]:
    """The paths whose annotations come from code; nothing where all of them are written."""
    derived = [
        derived_object(component.name, path)
        for component in dataflow.components.values()
        for path in component.paths
        if path.derived is not None
    ]
    return {"derived": derived} if derived else {}


def derived_object(component: str, path: Path) -> dict[str, Any]:
    """A path whose annotation was derived from code, with what in the code made it so."""
    return {
        "component": component,
        "path": {"from": path.source, "to": path.target},
        "annotation": str(path.annotation),
        "within": path.within.value,
        "nondeterministic": path.nondeterministic,
        "reasons": [
            {
                "text": reason.text,
                "file": reason.position.file if reason.position else None,
                "line": reason.position.line if reason.position else None,
                "column": reason.position.column if reason.position else None,
            }
            for reason in path.derived or ()
        ],
        "assumes": [reason.text for reason in path.assumed],
    }


def entry_object(entry: Entry) -> dict[str, Any]:
    """One order-sensitive path of the plan; the fields after `cause` depend on the strategy."""
    common: dict[str, Any] = {
        "component": entry.component,
        "path": {"from": entry.path.source, "to": entry.path.target},
        "annotation": str(entry.path.annotation),
        "strategy": entry.strategy.value,
        "inputs": sorted(entry.inputs),
    }
    if entry.strategy is Strategy.SEAL:
        common |= {
            "key": sorted(entry.key or ()),
            "seals": {name: sorted(key) for name, key in sorted(entry.seals.items())},
            "gate": _gate(entry.path.annotation),
            "streams": sorted(entry.streams),
            "vote": entry.vote.value if entry.vote else None,
            "release": entry.release.value if entry.release else None,
        }
        if entry.dedup:
            common["dedup"] = [
                {"stream": dedup.stream, "id": sorted(dedup.id)} for dedup in entry.dedup
            ]
    if entry.strategy is Strategy.ORDER:
        common |= {
            "scope": entry.scope.value if entry.scope else None,
            "mode": entry.mode.value if entry.mode else None,
        }
    common["cause"] = entry.cause
    if entry.strategy is Strategy.ORDER:
        common["alternatives"] = [
            {
                "seal": sorted(alternative.seal),
                "streams": sorted(alternative.streams),
                "sources": list(alternative.sources),
            }
            for alternative in entry.alternatives
        ]
        if entry.refused:
            common["refused"] = [
                {"seal": sorted(refusal.seal), "reason": str(refusal.why)}
                for refusal in entry.refused
            ]
    return common


def derivation_object(derivation: Derivation) -> dict[str, Any]:
    """How one output interface came by its label."""
    return {
        "component": derivation.component,
        "output": derivation.output,
        "steps": [
            {
                "path": str(step.path),
                "input": str(step.input),
                "annotation": str(step.path.annotation),
                "rule": step.rule,
                "adds": [str(label) for label in step.adds],
            }
            for step in derivation.steps
        ],
        "rep": derivation.rep,
        "reconciled": list(derivation.reconciled),
        "label": str(derivation.label),
    }


def dumps(result: Mapping[str, Any]) -> str:
    """The result as JSON text, one line for each stream, entry and derivation.

    Easier to compare line by line than one field per line, and several times as fast to write.
    """
    return "\n".join(_lines(result)) + "\n"


def _lines(result: Mapping[str, Any]) -> Iterator[str]:
    encode = json.JSONEncoder(ensure_ascii=False).encode
    yield "{"
    last = len(result) - 1
    for index, (field, value) in enumerate(result.items()):
        comma = "" if index == last else ","
        if isinstance(value, Mapping) and value:
            items = [f"    {encode(name)}: {encode(item)}" for name, item in value.items()]
        elif isinstance(value, list) and value:
            items = [f"    {encode(item)}" for item in value]
        else:
            yield f"  {encode(field)}: {encode(value)}{comma}"
            continue
        opening, closing = "{}" if isinstance(value, Mapping) else "[]"
        yield f"  {encode(field)}: {opening}"
        yield ",\n".join(items)
        yield f"  {closing}{comma}"
    yield "}"


def _gate(annotation: Annotation) -> list[str] | None:
    """The gate's attributes; null where it is `*`."""
    attributes = annotation.gate.attributes if annotation.gate else None
    return None if attributes is None else sorted(attributes)


def _warning(diagnostic: Diagnostic) -> dict[str, Any]:
    from blazes.report.problems import as_object

    return as_object(diagnostic)
