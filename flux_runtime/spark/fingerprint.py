"""The fingerprint of a job: what its state depends on. Change it, and the state no longer fits.

Checkpoints, buffers and channels were written by certain units from certain sources with certain
code. A job may go on from them after its paths, options, trigger, time-outs, sinks or descriptions
have changed, and not after these have.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flux_runtime.spark.feed import Feed
from flux_runtime.spark.job import Job
from flux_runtime.spark.units import FluxUnit, NativeUnit, SealUnit, StatefulUnit, Unit

Fingerprint = Mapping[str, Mapping[str, Any]]
"""Name of a source, unit or loop -> what of it the state depends on, as JSON."""


def fingerprint(job: Job) -> Fingerprint:
    """What the state of a job depends on."""
    found: dict[str, dict[str, Any]] = {}
    for source in job.sources.values():
        mark = source.punctuation
        found[f"source {source.name}"] = {
            "format": source.format,
            "schema": " ".join((source.ddl or "").split()),
            "producer": source.producer,
            "punctuation": None if mark is None else [mark.when, mark.count, mark.digest],
            **({"id": list(source.id)} if source.id else {}),
        }
    for loop in job.loops.values():
        found[f"loop {loop.name}"] = {"schema": loop.ddl, "feeds": [*map(_steps, loop.feeds)]}
    for unit in job.units.values():
        found[f"unit {unit.name}"] = {
            "kind": type(unit).__name__,
            "function": code(unit.fn),
            "inputs": [[interface, _steps(feed)] for interface, feed in unit.inputs()],
            **_of_kind(unit),
        }
    return found


def differences(then: Fingerprint, now: Fingerprint) -> Iterator[str]:
    """What has changed, one sentence for each source, unit or loop."""
    for name in sorted(then.keys() | now.keys()):
        if name not in now:
            yield f"{name} is gone"
        elif name not in then:
            yield f"{name} is new"
        elif then[name] != now[name]:
            fields = then[name].keys() | now[name].keys()
            changed = sorted(f for f in fields if then[name].get(f) != now[name].get(f))
            yield f"{name}: another {', '.join(changed)}"


def code(function: Callable[..., Any]) -> str:
    """A digest of a function's text without comments, layout and docstring.

    What the function calls is not followed. A lambda, or a function without a file, goes by its
    byte code.
    """
    compiled = getattr(function, "__code__", None)
    try:
        if compiled is None or compiled.co_name == "<lambda>":
            raise TypeError("no text of its own")
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        parts = () if compiled is None else (compiled.co_code, compiled.co_names)
        return _digest(f"{function.__qualname__} {parts}")
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return _digest(ast.unparse(tree))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


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
            return {"output_mode": unit.output_mode, "watermark": watermark}
        case StatefulUnit():
            changed_by = None if unit.changed_by is None else list(unit.changed_by)
            kept = {
                name: [each and code(each) for each in steps]
                for name, steps in unit.summaries.items()
            }
            on_kept = None if unit.on_kept is None else code(unit.on_kept)
            return {
                "monotone": unit.monotone,
                "changed_by": changed_by,
                "partial": [kept, on_kept],
            }
        case FluxUnit():
            steps = [
                [
                    *(code(s.fn), s.query, s.gives, None if s.gate is None else [*s.gate]),
                    *(s.schema, {name: [*texts] for name, texts in s.kept.items()}),
                ]
                for s in unit.steps
            ]
            return {
                "steps": steps,
                "order_by": list(unit.order_by),
                "replicas": unit.replicas,
                "partitions": unit.partitions,
            }
    raise TypeError(type(unit).__name__)
