"""PySpark code as plans: functions of components, streaming scripts, Declarative Pipelines.

The user's code is run, in a process of its own with limits (`sandbox`), against a Spark Connect
client without a server (`annotations.whitebox.connect`): no Java, no Spark, about a second.
Whatever goes wrong there is an answer too: a plan of which nothing is known, with reason and line.
Nothing here is called unless the user allows it: what allows it is a value of type `Limits`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import EMPTY, Position
from annotations.whitebox import answer_cache, ir, plan_json, sandbox
from annotations.whitebox.sandbox import Limits

_NEEDED: Final = ("pyspark", "pandas", "pyarrow", "grpc", "grpc_status", "zstandard")
_READER: Final = ("-P", "-m", "annotations.whitebox.connect.reader")
_SHOWN_MAX: Final = 400
"""Characters of what the code printed that an error shows."""


class Unreadable(Exception):  # noqa: N818
    """The code could not be read at all; the message says why, and `remedy` what to do."""

    def __init__(self, message: str, *, remedy: str = "", position: Position | None = None) -> None:
        self.remedy = remedy
        self.position = position
        super().__init__(message)


@dataclass(frozen=True)
class Input:
    """An input of a function: its columns with their Spark SQL types, None where not declared."""

    columns: Mapping[str, str] | None = None
    role: ir.Role = ir.Role.STREAM


@dataclass(frozen=True)
class Function:
    """`module:function` of a component, with one DataFrame for each input, by name."""

    module: str
    function: str
    inputs: Mapping[str, Input]


@dataclass(frozen=True)
class Query:
    """A streaming query that a script starts, or a batch that it writes."""

    plan: ir.Relation
    position: Position | None
    output_mode: str = "append"
    format: str = ""
    name: str = ""
    path: str = ""
    batch: bool = False
    foreach: str = ""
    """`foreachBatch` or `foreach` where the user's code takes the records."""
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class Script:
    """What a script does."""

    queries: tuple[Query, ...]
    sources: Mapping[str, Mapping[str, Any]]
    """External sources: name -> format, options, path, columns, streaming."""
    problem: str | None = None
    """Why the script did not come to its end; what it started before is in `queries`."""
    position: Position | None = None


@dataclass(frozen=True)
class Flow:
    """What fills a dataset of a pipeline."""

    name: str
    target: str
    plan: ir.Relation
    position: Position
    query: str | None = None
    """Its text, where it is written in SQL."""


@dataclass(frozen=True)
class Dataset:
    """A table, view or sink of a pipeline."""

    name: str
    kind: str
    position: Position
    comment: str = ""
    format: str = ""
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)


@dataclass(frozen=True)
class Project:
    """A Declarative Pipelines project."""

    name: str
    datasets: Mapping[str, Dataset]
    flows: tuple[Flow, ...]
    sources: Mapping[str, Mapping[str, Any]]
    problems: tuple[tuple[str, Position], ...] = ()
    """Statements that were not understood."""


@contextmanager
def _understood() -> Iterator[None]:
    """Unreadable where an answer is not what the reader writes: code can change what it runs in."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        raise Unreadable(
            "the answer of the process in which the code was run makes no sense",
            remedy="Let the code leave alone what runs it: Python's own modules and PySpark's.",
        ) from None


@_understood()
def read_functions(
    functions: Sequence[Function], *, folder: Path, limits: Limits
) -> list[ir.Relation]:
    """The plans of functions whose modules stand in `folder`; `Opaque`, with a reason, for each
    that could not be read. Unreadable where none can be."""
    asked = [
        {
            "module": each.module,
            "function": each.function,
            "inputs": {
                name: {
                    "columns": None if given.columns is None else dict(given.columns),
                    "role": given.role.value,
                }
                for name, given in each.inputs.items()
            },
        }
        for each in functions
    ]
    request = {"kind": "functions", "folder": str(folder.resolve()), "functions": asked}
    answer = _ask(request, folder, limits)
    return [_plan(each, found) for each, found in zip(functions, answer["functions"], strict=True)]


def _plan(function: Function, found: Mapping[str, Any]) -> ir.Relation:
    if "plan" in found:
        return plan_json.from_json(found["plan"])
    inputs = tuple(
        ir.Source(name, (), given.role, complete=False) for name, given in function.inputs.items()
    )
    where = _position(found.get("position"))
    return ir.Opaque(inputs, (), found["error"], nondeterministic=True, position=where)


@_understood()
def read_script(path: Path, *, arguments: Sequence[str] = (), limits: Limits) -> Script:
    """What a whole script does. Unreadable where it starts nothing and fails."""
    request = {"kind": "script", "path": str(path.resolve()), "arguments": list(arguments)}
    answer = _ask(request, path.parent, limits)
    queries = tuple(_query(found) for found in answer["queries"])
    problem, position = answer.get("error"), _position(answer.get("position"))
    if problem and not queries:
        raise Unreadable(problem, position=position)
    return Script(queries, answer["sources"], problem, position)


def _query(found: Mapping[str, Any]) -> Query:
    foreach = "foreachBatch" if found.get("foreach_batch") else ""
    return Query(
        plan=plan_json.from_json(found["plan"]),
        position=_position(found["position"]),
        output_mode=found.get("output_mode") or "append",
        format=found.get("format") or found.get("source") or "",
        name=found.get("query_name") or found.get("table_name") or "",
        path=found.get("path") or found["options"].get("path", ""),
        batch=bool(found.get("batch")),
        foreach=foreach or ("foreach" if found.get("foreach_writer") else ""),
        options=found["options"],
    )


@_understood()
def read_pipeline(spec: Path, *, limits: Limits) -> Project:
    """The project of a `spark-pipeline.yml`. Unreadable where a definition fails."""
    request = {"kind": "pipeline", "path": str(spec.resolve())}
    answer = _ask(request, spec.parent, limits)
    if "error" in answer:
        raise Unreadable(answer["error"], position=_position(answer.get("position")))
    datasets = {
        name: Dataset(
            name=name,
            kind=found["kind"],
            position=_placed(found["position"]),
            comment=found.get("comment") or "",
            format=found.get("format") or "",
            options=found.get("options", {}),
        )
        for name, found in answer["datasets"].items()
    }
    flows = tuple(
        Flow(
            name=found["name"],
            target=found["target"],
            plan=plan_json.from_json(found["plan"]),
            position=_placed(found["position"]),
            query=found.get("query"),
        )
        for found in answer["flows"]
    )
    problems = tuple((text, _placed(place)) for text, *place in answer["problems"])
    return Project(answer["name"], datasets, flows, answer["sources"], problems)


# ---- the process


def _ask(request: Mapping[str, Any], folder: Path, limits: Limits) -> dict[str, Any]:
    """What the process answers that runs the code, or answered before."""
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise Unreadable(
            f"reading Python code needs Spark's Connect client; missing: {', '.join(missing)}",
            remedy="Install it: pip install 'blazes[pyspark]'.",
        )
    known = answer_cache.given(request)
    if known is not None:
        return known
    began = time.time()
    outcome = sandbox.run(
        [sys.executable, *_READER],
        lambda answer: {**request, "answer": str(answer)},
        folder=folder,
        limits=limits,
    )
    if outcome.answer is None:
        printed = outcome.printed.strip()[-_SHOWN_MAX:]
        reason = f"{sandbox.why(outcome, limits)}: {printed or 'no output'}"
        raise Unreadable(
            f"the code was run to be read, and {reason}",
            remedy="Let it describe queries, without waiting for anything or starting anything.",
        )
    found: dict[str, Any] = json.loads(outcome.answer)
    answer_cache.keep(request, found, found.pop("seen"), since=began)
    return found


def _position(found: Sequence[Any] | None) -> Position | None:
    return None if found is None else _placed(found)


def _placed(found: Sequence[Any]) -> Position:
    file, line, column = found
    return plan_json.near(Position(file, line, column))
