"""The fingerprint of a job: what its state depends on, as the state keeps it.

Checkpoints, buffers and channels were written by certain units from certain sources with certain
code. What a difference means for the state is said by `flux_runtime.spark.changes`. Paths and
options of sources are in it so that it can be said what follows from another one; triggers,
time-outs and descriptions are not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from flux_runtime.spark.ends.sinks import Called
from flux_runtime.spark.feed import Feed
from flux_runtime.spark.function_text import code, digest, modules
from flux_runtime.spark.job import Job
from flux_runtime.spark.units import FluxUnit, NativeUnit, SealUnit, StatefulUnit, Unit

Fingerprint = Mapping[str, Mapping[str, Any]]
"""Name of a source, unit, loop or sink -> what of it the state depends on, as JSON."""


def fingerprint(job: Job) -> Fingerprint:
    """Everything that the state of a job depends on, once its channels are assigned."""
    result: dict[str, dict[str, Any]] = {}
    for source in job.sources.values():
        mark = source.punctuation
        result[f"source {source.name}"] = {
            "format": source.format,
            "schema": " ".join((source.ddl or "").split()),
            "producer": source.producer,
            "punctuation": None if mark is None else [mark.when, mark.count, mark.digest],
            **({"id": list(source.id)} if source.id else {}),
            **({"value": [source.value_format, dict(source.columns)]} if source.value else {}),
            "path": source.path,
            "options": {name: digest(text) for name, text in sorted(source.declared.items())},
        }
    for loop in job.loops.values():
        result[f"loop {loop.name}"] = {"schema": loop.ddl, "feeds": [*map(_steps, loop.feeds)]}
    for unit in job.units.values():
        result[f"unit {unit.name}"] = {
            "kind": type(unit).__name__,
            "function": code(unit.fn),
            "modules": modules([*functions_of(unit)]),
            "inputs": [[interface, _steps(feed)] for interface, feed in unit.inputs()],
            "channel": unit.channel is not None,
            **_of_kind(unit),
        }
    for sink in job.sinks.values():
        functions = [step.apply for feed in sink.feeds for step in feed.transforms]
        if isinstance(sink.target, Called):
            taken = sink.target.function
            functions.append(getattr(taken, "process", taken))
        result[f"sink {sink.name}"] = {
            "format": sink.format,
            "path": sink.path,
            "text": [[*map(_steps, sink.feeds)], modules(functions)],
        }
    return result


def functions_of(unit: Unit) -> Iterator[Callable[..., Any]]:
    """Every function of a unit and of what is before it in its feeds."""
    yield unit.fn
    for _, feed in unit.inputs():
        yield from (step.apply for step in feed.transforms)
    match unit:
        case SealUnit():
            yield from unit.partial or ()
        case StatefulUnit():
            yield from (step for steps in unit.summaries.values() for step in steps if step)
            yield from () if unit.on_kept is None else (unit.on_kept,)
        case FluxUnit():
            yield from (step.fn for step in unit.steps)


def _if_any(
    deltas: Mapping[str, tuple[str, Any]], times: Mapping[str, Mapping[str, Any]]
) -> Iterator[Any]:
    """Everything that the state of a step depends on that keeps less than its records."""
    if deltas:
        yield {name: text for name, (text, _) in deltas.items()}
    if times:
        yield {name: dict(time) for name, time in times.items()}


def _steps(feed: Feed) -> list[str]:
    steps = [f"{transform.name} {code(transform.apply)}" for transform in feed.transforms]
    return [feed.origin.name, *steps]


def _of_kind(unit: Unit) -> dict[str, Any]:
    match unit:
        case SealUnit():
            return {
                "key": list(unit.key),
                "renamed": {origin: list(names) for origin, names in unit.renamed.items()},
                "forward": list(unit.forward),
                "partial": None if unit.partial is None else [*map(code, unit.partial)],
            }
        case NativeUnit():
            watermark = None if unit.watermark is None else list(unit.watermark)
            return {
                "output_mode": unit.output_mode,
                "watermark": watermark,
                "stateless": unit.stateless,
            }
        case StatefulUnit():
            changed_by = None if unit.changed_by is None else list(unit.changed_by)
            summaries = {
                name: [step and code(step) for step in steps]
                for name, steps in unit.summaries.items()
            }
            on_kept = None if unit.on_kept is None else code(unit.on_kept)
            return {
                "monotone": unit.monotone,
                "changed_by": changed_by,
                "partial": [summaries, on_kept],
            }
        case FluxUnit():
            steps = [
                [
                    *(code(s.fn), s.query, s.gives, None if s.gate is None else [*s.gate]),
                    *(s.schema, {name: [*texts] for name, texts in s.kept.items()}),
                    *([] if s.processor is None else [asdict(s.processor)]),
                    *_if_any(s.deltas, s.times),
                ]
                for s in unit.steps
            ]
            return {
                "steps": steps,
                "order_by": list(unit.order_by),
                "replicas": unit.replicas,
                "partitions": unit.partitions,
                "sites": unit.sites,
                "copies": unit.copies,
            }
    raise TypeError(type(unit).__name__)
