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
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import EMPTY, Position
from annotations.whitebox import answer_cache, ir, plan_json, sandbox
from annotations.whitebox.sandbox import Limits

_NEEDED: Final = ("pyspark", "pandas", "pyarrow", "grpc", "grpc_status", "zstandard")
_READER: Final = ("-P", "-m", "annotations.whitebox.connect.reader")
SPECIFICATIONS: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
_SHOWN_MAX: Final = 400
"""Characters of what the code printed that an error shows."""


class Unreadable(Exception):  # noqa: N818
    """The code could not be read at all; the message says why, and `remedy` what to do.
    `unparsed`: by this version of Python, so that to run it would not help."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "",
        position: Position | None = None,
        unparsed: bool = False,
    ) -> None:
        self.remedy = remedy
        self.unparsed = unparsed
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
class Code:
    """A query as the body of a function in PySpark."""

    inputs: Mapping[str, str]
    """Source -> the parameter that it comes in by."""
    body: tuple[str, ...]
    """Its lines; one may have several lines of text."""
    imports: tuple[str, ...] = ()
    statements: tuple[tuple[str, int, str], ...] = ()
    """Definitions of the user that it needs: file, line, text."""


@dataclass(frozen=True)
class Query:
    """A streaming query that a script starts, or a batch that it writes."""

    plan: ir.Relation
    position: Position | None
    output_mode: str = "append"
    format: str = ""
    name: str = ""
    table: str = ""
    path: str = ""
    batch: bool = False
    in_batch: bool = False
    """Written by the function of `foreachBatch`, micro-batch by micro-batch."""
    anew: bool = False
    """It begins anew when it is started again: its checkpoint is another one, or removed."""
    started: Position | None = None
    """Where the query is started, if not at `position`."""
    foreach: str = ""
    """`foreachBatch` or `foreach` where the user's code takes the records."""
    options: Mapping[str, str] = field(default_factory=lambda: EMPTY)
    trigger: str = ""
    """An interval, or `available now`; empty: as fast as possible."""
    code: Code | str = ""
    """Why there is none, where it is a text."""
    taken: Code | str | None = None
    """Of `foreachBatch` and `foreach`, what takes the rows, which the only line of the body gives;
    why it is not there. None where the code says all that is written."""


@dataclass(frozen=True)
class Script:
    """The queries that a script starts."""

    queries: tuple[Query, ...]
    sources: Mapping[str, Mapping[str, Any]]
    """External sources: name -> format, options, path, columns, streaming."""
    problems: tuple[tuple[str, Position | None], ...] = ()
    """Why the script did not come to its end, after what is in `queries`; what was left out."""
    decided: str = ""
    """What is not known here, or left to chance, and may have decided what was done."""


@dataclass(frozen=True)
class Flow:
    """A flow that fills a dataset of a pipeline."""

    name: str
    target: str
    plan: ir.Relation
    position: Position
    query: str | None = None
    """Its text, where it is written in SQL."""
    code: Code | str = ""
    """Why there is none, where it is a text."""


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
    notes: tuple[tuple[str, Position | None], ...] = ()
    """What was left out of a script, or ended it."""
    queries: tuple[Query, ...] = ()
    """Queries that a script starts beside its pipeline."""
    decided: str = ""


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
    functions: Sequence[Function], *, folder: Path, limits: Limits, follow: bool = False
) -> list[ir.Relation]:
    """The plans of functions whose modules stand in `folder`; `Opaque`, with a reason, for each
    that could not be read. Unreadable where none can be. `follow`: they are not run, but followed
    as far as that goes."""
    request = _of_functions(functions, folder)
    answer = _ask({**request, "follow": True} if follow else request, folder, limits)
    return _plans(functions, answer["functions"])


@_understood()
def read_functions_twice(
    functions: Sequence[Function], *, folder: Path, limits: Limits
) -> tuple[list[ir.Relation], list[ir.Relation]]:
    """The plans of functions that are followed, and those of the same functions that are run."""
    answer = _ask(_of_functions(functions, folder) | {"twice": True}, folder, limits)
    return _plans(functions, answer["followed"]), _plans(functions, answer["functions"])


def _plans(
    functions: Sequence[Function], descriptions: Sequence[Mapping[str, Any]]
) -> list[ir.Relation]:
    return [
        _plan(function, description)
        for function, description in zip(functions, descriptions, strict=True)
    ]


def left_to_the_place(plan: ir.Relation, why: str, *others: ir.Relation) -> ir.Opaque:
    """A plan of code that was run, and may do something else at another place."""
    reason = f"running it has shown one way, and it may go another: {why}"
    inside = (plan, *others)
    return ir.Opaque(inside, plan.columns, reason, True, True, left_open="place")


def _of_functions(functions: Sequence[Function], folder: Path) -> dict[str, Any]:
    asked = [
        {
            "module": function.module,
            "function": function.function,
            "inputs": {
                name: {
                    "columns": None if given.columns is None else dict(given.columns),
                    "role": given.role.value,
                }
                for name, given in function.inputs.items()
            },
        }
        for function in functions
    ]
    return {"kind": "functions", "folder": str(folder.resolve()), "functions": asked}


def _plan(function: Function, description: Mapping[str, Any]) -> ir.Relation:
    if "plan" in description:
        plan = plan_json.from_json(description["plan"])
        decided = description.get("decided")
        return left_to_the_place(plan, f"`{decided}` decides it") if decided else plan
    inputs = tuple(
        ir.Source(name, (), given.role, complete=False) for name, given in function.inputs.items()
    )
    where = _position(description.get("position"))
    left_open = description.get("left_open", "text")
    reason = description["error"]
    return ir.Opaque(inputs, (), reason, True, True, where, left_open=left_open)


@_understood()
def read_script(path: Path, *, limits: Limits, follow: bool = False) -> Script | Project:
    """The queries or the pipeline of a whole script, notebook or file of SQL. Unreadable where
    it starts nothing and fails. `follow`: it is not run, but followed as far as that goes."""
    return _script(_ask(_of_file(path, follow=follow), path.parent, limits))


@_understood()
def read_scripts(
    paths: Sequence[Path], *, limits: Limits, follow: bool = False
) -> list[Script | Project | Unreadable]:
    """The same of many files, by one process, each with limits of its own."""
    scripts: list[Script | Project | Unreadable] = []
    requests = [_of_file(path, follow=follow) for path in paths]
    for answer in _ask_several(requests, limits):
        try:
            with _understood():  # the others are read all the same
                scripts.append(answer if isinstance(answer, Unreadable) else _script(answer))
        except Unreadable as unreadable:
            scripts.append(unreadable)
    return scripts


def _of_file(path: Path, *, follow: bool) -> dict[str, Any]:
    request: dict[str, Any] = {"kind": "pipeline", "path": str(path.resolve())}
    if path.name not in SPECIFICATIONS:
        request["kind"] = "sql" if path.suffix == ".sql" else "script"
    return {**request, "follow": True} if follow and request["kind"] != "sql" else request


def _script(answer: Mapping[str, Any]) -> Script | Project:
    problem, position = answer.get("error"), _position(answer.get("position"))
    notes = tuple((text, _position(at)) for text, at in answer.get("notes", ()))
    decided = answer.get("decided", "")
    if "datasets" in answer:
        return replace(_project(answer), notes=notes, decided=decided)
    if problem:
        notes = ((problem, position), *notes)
    queries = tuple(_query(description) for description in answer.get("queries", ()))
    if (project := answer.get("project")) and project["flows"]:
        return replace(_project(project), notes=notes, queries=queries, decided=decided)
    if problem and not queries:
        unparsed = answer["unparsed"]
        remedy = _ANOTHER_PYTHON if unparsed else _REMEDY
        raise Unreadable(problem, position=position, remedy=remedy, unparsed=unparsed)
    return Script(queries, answer["sources"], notes, decided)


_ANOTHER_PYTHON: Final = (
    "Correct the line, or install blazes for the Python that it is written for."
)
_REMEDY: Final = (
    "Let the script describe its queries with DataFrames, before it asks for data; or describe the "
    "dataflow in a file."
)


def _query(description: Mapping[str, Any]) -> Query:
    foreach = "foreachBatch" if description.get("foreach_batch") else ""
    return Query(
        plan=plan_json.from_json(description["plan"]),
        position=_position(description["position"]),
        output_mode=description.get("output_mode") or "append",
        format=description.get("format") or description.get("source") or "",
        name=description.get("query_name", ""),
        table=description.get("table_name", ""),
        path=description.get("path") or description["options"].get("path", ""),
        batch=bool(description.get("batch")),
        in_batch=bool(description.get("in_batch")),
        anew=bool(description.get("anew")),
        started=_position(description.get("started")),
        foreach=foreach or ("foreach" if description.get("foreach_writer") else ""),
        options=description["options"],
        trigger=description.get("trigger", ""),
        code=_code(description.get("code")),
        taken=_code(description["taken"]) if "taken" in description else None,
    )


def _code(description: Mapping[str, Any] | None) -> Code | str:
    if description is None or "reason" in description:
        return str(description["reason"]) if description else ""
    return Code(
        inputs=dict(description["inputs"]),
        body=tuple(description["body"]),
        imports=tuple(description["imports"]),
        statements=tuple((file, line, text) for file, line, text in description["statements"]),
    )


@_understood()
def read_pipeline(spec: Path, *, limits: Limits, follow: bool = False) -> Project:
    """The project of a `spark-pipeline.yml`. Unreadable where a definition fails. `follow`: its
    files are not run, but followed as far as that goes."""
    answer = _ask(_of_file(spec, follow=follow), spec.parent, limits)
    notes = tuple((text, _position(at)) for text, at in answer.get("notes", ()))
    return replace(_project(answer), notes=notes, decided=answer.get("decided", ""))


def _project(answer: Mapping[str, Any]) -> Project:
    if "error" in answer:
        raise Unreadable(answer["error"], position=_position(answer.get("position")))
    datasets = {
        name: Dataset(
            name=name,
            kind=description["kind"],
            position=_placed(description["position"]),
            comment=description.get("comment") or "",
            format=description.get("format") or "",
            options=description.get("options", {}),
        )
        for name, description in answer["datasets"].items()
    }
    flows = tuple(
        Flow(
            name=description["name"],
            target=description["target"],
            plan=plan_json.from_json(description["plan"]),
            position=_placed(description["position"]),
            query=description.get("query"),
            code=_code(description.get("code")),
        )
        for description in answer["flows"]
    )
    problems = tuple((text, _placed(place)) for text, *place in answer["problems"])
    return Project(answer["name"], datasets, flows, answer["sources"], problems)


# ---- the process


def _ask(request: Mapping[str, Any], folder: Path, limits: Limits) -> dict[str, Any]:
    """The answer of the process that runs the code, of now or of an earlier time."""
    _check_installed()
    known = answer_cache.given(request)
    if known is not None:
        return known
    began = time.time()
    answer = _run(request, folder, limits)
    answer_cache.keep(request, answer, answer.pop("seen"), since=began)
    return answer


def _ask_several(
    requests: Sequence[Mapping[str, Any]], limits: Limits
) -> list[dict[str, Any] | Unreadable]:
    """The same for many requests, each within these limits."""
    _check_installed()
    answers = [answer_cache.given(request) for request in requests]
    asked = [n for n, known in enumerate(answers) if known is None]
    missing = Unreadable(
        f"it was run to be read, and came to no answer within {limits.seconds:g} s",
        remedy="Let it describe queries, without waiting for anything or starting anything.",
    )
    if asked:
        began = time.time()
        request = {
            "kind": "several",
            "seconds": limits.seconds,
            "requests": [{**requests[n], "folder": str(_folder_of(requests[n]))} for n in asked],
        }
        folders = sorted({_folder_of(requests[n]) for n in asked})
        at_most = replace(limits, seconds=limits.seconds * len(asked))
        for n, answer in zip(
            asked, _run(request, Path("/"), at_most, folders)["answers"], strict=True
        ):
            if answer is not None:
                if "seen" in answer:  # else a mistake of the reader ended it
                    answer_cache.keep(requests[n], answer, answer.pop("seen"), since=began)
                answers[n] = answer
    return [missing if answer is None else answer for answer in answers]


def _folder_of(request: Mapping[str, Any]) -> Path:
    return Path(request["folder"]) if "folder" in request else Path(request["path"]).parent


def _check_installed() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise Unreadable(
            f"reading Python code needs Spark's Connect client; missing: {', '.join(missing)}",
            remedy="Install it: pip install 'blazes[pyspark]'.",
        )


def _run(
    request: Mapping[str, Any], folder: Path, limits: Limits, projects: Sequence[Path] = ()
) -> dict[str, Any]:
    outcome = sandbox.run(
        [sys.executable, *_READER],
        lambda answer: {**request, "answer": str(answer)},
        folder=folder,
        limits=limits,
        projects=projects,
    )
    if outcome.answer is None:
        printed = outcome.printed.strip()[-_SHOWN_MAX:]
        reason = f"{sandbox.why(outcome, limits)}: {printed or 'no output'}"
        raise Unreadable(
            f"the code was run to be read, and {reason}",
            remedy="Let it describe queries, without waiting for anything or starting anything.",
        )
    content: dict[str, Any] = json.loads(outcome.answer)
    return content


def _position(place: Sequence[Any] | None) -> Position | None:
    return None if place is None else _placed(place)


def _placed(place: Sequence[Any]) -> Position:
    file, line, column = place
    return plan_json.near(Position(file, line, column))
