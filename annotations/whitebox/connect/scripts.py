"""A script, notebook or one-file pipeline that is run to be read: what it starts and defines.

A query that hands its micro-batches to a function (`foreachBatch`) is read by calling the function
once, with a batch that has the columns of the query: what it writes are the query's results.
"""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from annotations.dataflow import Position
from annotations.vocabulary import Within
from annotations.whitebox import ir, plan_json
from annotations.whitebox.connect.reading import (
    Reading,
    place_text,
    sources,
)  # first: prepares the process

# isort: split
from annotations.whitebox.connect import counts, texts
from annotations.whitebox.connect.answers import INSERTING, Started
from annotations.whitebox.connect.carrying import carried, taken
from annotations.whitebox.connect.databricks import (
    DBUtils,
    Pipeline,
    connect_module,
    dbutils_module,
    delta_modules,
)
from annotations.whitebox.connect.project import registration, script_project
from annotations.whitebox.derivation import TAKEN
from annotations.whitebox.derive import annotate
from annotations.whitebox.following import configuration, outside, permitted
from annotations.whitebox.following.interpreter import Interpreter
from annotations.whitebox.following.outside import Refused
from annotations.whitebox.following.places import caller
from annotations.whitebox.following.program import RUN, notebook, tree_of
from annotations.whitebox.following.user_functions import by_chance, chances, shown
from annotations.whitebox.python_chance import Chance
from annotations.whitebox.traits import overlap

_REPLACING: Final = {"WriteOperation": (2,), "WriteOperationV2": (2, 3, 5, 6)}
"""Modes in which a write removes rows that were there, all or those of a partition."""
_VERSION: Final = "txnVersion"
"""Delta's option that tells the writes of an application apart."""
_OF_BATCHES: Final = ("txnversion", "txnappid")
_NUMBER: Final = "the number of the micro-batch"
_FIRST_ONLY: Final = {"WriteOperation": (0, 3, 4), "WriteOperationV2": (1,)}
"""Modes in which a write adds nothing where something is there, or fails: also without a mode."""
_ADDING: Final = frozenset({"console", "eventhubs", "kafka", "kinesis", "pulsar"})
"""Formats that add to what is there without a mode."""
_INSERTING: Final = 2
"""How a `WriteOperation` saves that is `insertInto`."""
_PLACES: Final = frozenset(
    {
        "collection",
        "database",
        "dbtable",
        "es.resource",
        "index",
        "keyspace",
        "path",
        "replacewhere",
    }
    | {"stream", "table", "topic"}
)
"""Options that say where rows are written."""
_SEVERAL: Final = "; the function writes more than that: let a query of its own write this"
_FOLLOWED: Final = "the script was read without being run; --execute runs it to be read"
_SHOWN: Final = 4
"""So many names that are not known are shown."""


def script(home: Reading, request: Mapping[str, Any]) -> dict[str, Any]:
    """A script or notebook: the streaming queries that it starts, and the datasets and flows
    of a pipeline that it defines."""
    path = Path(request["path"])
    sys.path.insert(0, str(path.parent))
    pipeline = Pipeline(home.spark)
    pipeline.extend()
    outside.MODULES.update(
        {
            "databricks.connect": connect_module,
            "dlt": pipeline.module,
            "pyspark.dbutils": dbutils_module,
            **delta_modules(home.spark),
        }
    )
    with home.failures() as answer:
        try:
            tree = tree_of(path)
            if request.get("follow"):
                with registration(home):
                    _follow(home, tree, path, [pipeline.functions, pipeline.project.flows])
            else:
                configuration.watch(path)
                outside.stand_ins(tree, str(path))
                for call in chances(tree):
                    outside.note(f"`{call}` is another one each time, and was taken as it was now")
                with registration(home):
                    _run(home, tree, path)
        except SystemExit as ended:
            if ended.code not in (None, 0):
                raise Refused(f"the script exits with {ended.code}") from None
    if request.get("follow") and answer.get("error") and not answer["unparsed"]:
        answer["position"] = place_text(caller())
    if pipeline.functions or pipeline.project.flows or home.answers.pipeline:
        answer["project"] = script_project(home, pipeline.project, pipeline.functions, path)
    started = home.answers.taken()
    answer["queries"] = [described for query in started for described in _queries(home, query)]
    answer["sources"] = home.external()
    answer["decided"] = not request.get("follow") and outside.left_to_the_place()
    answer["notes"] = noted(follow=bool(request.get("follow")))
    return answer


def noted(*, follow: bool) -> list[Any]:
    """Everything that could not be followed, as a value for JSON."""
    rest = [text for text, _ in outside.NOTES if not text.startswith(TAKEN)]
    if follow and (rest or outside.MADE):
        names = [f"`{name}`" for name in sorted(set(map(outside.root, outside.MADE)) - {""})]
        more = ["..."] if len(names) > _SHOWN else []
        shown = ", ".join([*names[:_SHOWN], *more])
        text = f"nothing is known here of {shown}: {_FOLLOWED}" if names else _FOLLOWED
        outside.NOTES[text, None] = None
    for value in outside.DECIDED:
        shown = outside.shown(value)
        outside.note(f"`{shown}` is not known here, and what the script does depends on it")
    return [[text, place_text(at)] for text, at in outside.NOTES]


def _follow(home: Reading, tree: ast.Module, path: Path, lists: list[list[Any]]) -> None:
    """Follow a program without running it, with what a platform puts in place. `lists`: of
    what it defines."""
    sys.path.remove(str(path.parent))
    permitted.wall(path)

    def run_notebook(name: str) -> None:
        file = notebook(name, path)
        if file is None:
            outside.note(f"the notebook `{name}` that is run here is not there")
        else:
            interpreter.run(tree_of(file), file, names)

    interpreter = Interpreter(outside.MODULES, outside.arguments(tree, str(path), run=False))
    interpreter.made = [home.answers.started, home.answers.pipeline, *lists]
    names = {
        "spark": home.spark,
        "dbutils": DBUtils(),
        "display": permitted.shown,
        "displayHTML": permitted.shown,
        RUN: run_notebook,
    }
    interpreter.session = home.spark
    interpreter.run(tree, path, names)
    interpreter.finish()


def _run(home: Reading, tree: ast.Module, path: Path) -> None:
    """Run a program with what a platform puts in place."""
    import pyspark.sql
    from pyspark.sql.connect.dataframe import DataFrame

    # What a script puts in place of a method of DataFrames is called.
    pyspark.sql.DataFrame = DataFrame  # type: ignore[misc,assignment]
    main = ModuleType("__main__")
    main.__file__ = str(path)
    sys.modules["__main__"] = main

    def run_notebook(name: str) -> None:
        file = notebook(name, path)
        if file is None:
            outside.note(f"the notebook `{name}` that is run here is not there")
        else:
            exec(compile(tree_of(file), str(file), "exec"), main.__dict__)

    main.__dict__.update(
        spark=home.spark,
        sc=home.spark.sparkContext,
        dbutils=DBUtils(),
        display=permitted.shown,
        displayHTML=permitted.shown,
        **{RUN: run_notebook},
    )
    exec(compile(tree, str(path), "exec"), main.__dict__)


def _queries(home: Reading, started: Started) -> list[dict[str, Any]]:
    """A query; one that hands micro-batches to a function is what the function writes."""
    described, plan = _query(home, started)
    if started.body is None:
        return [described]
    kind = "foreach" if described.get("foreach_writer") else "foreachBatch"
    described["taken"] = _taken(home, started, kind, described)
    if kind == "foreach":
        return [described]
    name = f"__micro_batch_{started.command.foreach_batch.python_function.command.decode()}__"
    columns = tuple((c.name, c.type, c.nullable) for c in plan.columns)
    home.sources.declared[name] = (columns or None, ir.Role.STREAM)
    home.answers.views = {**home.answers.views, **started.views}
    at, stream = described["position"], started.command.input
    with home.failures() as failed:
        written, varies = _called(home, started.body, name)
    if failed:
        written, varies = home.answers.taken(), ""
    descriptions = [_written(home, item, name, plan, stream, varies, at) for item in written]
    queries = [described | item for item in descriptions if item is not None]
    if not failed and queries:
        for value in queries:
            value.pop("foreach_batch")
            if "reason" not in value["code"]:
                value.pop("taken")
            elif len(queries) == 1:
                value["code"] = described["code"]
            else:
                value["taken"] = {"reason": value["code"]["reason"] + _SEVERAL}
        return queries
    reason = failed.get("error") or "it writes nothing that is known here"
    opaque = ir.Opaque(
        (plan,),
        plan.columns,
        f"what the function of foreachBatch does is not known: {reason}",
        position=Position(*failed["position"]) if failed.get("position") else started.position,
        left_open="text",
    )
    if queries:
        described["taken"] = {"reason": opaque.reason + _SEVERAL}
    return [described | {"plan": plan_json.to_json(opaque)}, *queries]


def _called(home: Reading, body: Any, batch: str) -> tuple[list[Started], str]:
    """The writes of the function of `foreachBatch` of a micro-batch, and why of others it writes
    something else; empty where it does not: not of other numbers, nor of more rows or none."""
    several: list[list[Started]] = []
    places: dict[str, Started] = {}
    texts: list[list[dict[str, Any]]] = []
    settings: list[dict[str, str]] = []
    differs, unknown = "", list[str]()
    home.places.in_batch = True
    outside.CHANGED.clear()
    counts.MET.clear()
    try:
        for given in counts.tried(batch):
            home.answers.counts = given
            known = len(outside.BOTH)
            body(home.spark.table(f"`{batch}`"), counts.Counted(given.number))
            written = home.answers.taken()
            unknown += outside.BOTH[known:]
            several.append(written)
            texts.append(
                [_of_number(_query(home, q, in_batch=True)[0], given.number) for q in written]
            )
            settings.append(dict(home.answers.conf))
            positions = {started.position for started in places.values()}
            places |= {
                _place(query): started
                for query, started in zip(texts[-1], written, strict=True)
                if not given.number or started.position not in positions  # it may be in the place
            }
            if texts[-1] == texts[0] and (settings[-1] == settings[0] or not given.number):
                continue
            if given.number:
                differs = differs or "the number of the micro-batch"
            elif not _but_empty(texts[0], several[0], texts[-1], given):
                differs = differs or "how many records a micro-batch has"
    finally:
        home.answers.counts = None
        home.places.in_batch = False
    queries = [*places.values()] if unknown or differs else several[0]
    if unknown:
        return queries, f"what is written depends on `{unknown[0]}`, which is not known"
    text = shown(body)
    if text.kept:
        return queries, f"what is written depends on `{text.kept}`, which the function changes"
    if text.lost:
        return queries, f"rows are missing where a write fails, which `{text.lost}` passes over"
    if outside.CHANGED:
        return queries, f"`{outside.CHANGED[0]}` changes what micro-batches before have written"
    if any(query["options"].get(_VERSION, "") not in ("", _NUMBER) for query in texts[0]):
        return queries, f"of the micro-batches with one {_VERSION}, only the first is written"
    return queries, f"what is written depends on {differs}" if differs else ""


def _but_empty(
    expected: list[dict[str, Any]],
    written: list[Started],
    queries: list[dict[str, Any]],
    given: counts.Counts,
) -> bool:
    """Whether all that a function has not written of what was expected has no records."""
    missing = [
        started for query, started in zip(expected, written, strict=True) if query not in queries
    ]
    return all(query in expected for query in queries) and (
        not given.whole or all(given.is_empty(started.command.input) for started in missing)
    )


def _place(query: Mapping[str, Any]) -> str:
    """Where a query writes."""
    if place := query.get("table_name") or query.get("path"):
        return str(place)
    options = {k: v for k, v in query["options"].items() if k.lower() in _PLACES}
    return json.dumps([query.get("format"), options])


def _of_number(query: dict[str, Any], number: int) -> dict[str, Any]:
    """A write of a micro-batch; Delta leaves one out that has the version of an application again,
    so the number of the micro-batch as that version changes nothing of what is written."""
    options = {k.lower(): value for k, value in query["options"].items()}
    version = options.get(_VERSION.lower(), "")
    numbered = version == str(number) and "txnappid" in options
    changed = {_VERSION: _NUMBER if numbered else version} if version else {}
    rest = {k: v for k, v in query["options"].items() if k.lower() != _VERSION.lower()}
    return query | {"options": rest | changed}


def _taken(
    home: Reading, started: Started, kind: str, described: Mapping[str, Any]
) -> dict[str, Any]:
    """The code of what takes the rows of a query."""
    if described.get("output_mode", "").lower() == "complete":
        return {
            "reason": f'{kind} gets all rows every time (outputMode("complete")), and a job gives '
            "those that have changed: use update, and replace rows by their key"
        }
    return taken(home, started.body, kind)


def _written(
    home: Reading,
    written: Started,
    batch: str,
    query: ir.Relation,
    stream: Any,
    varies: str,
    started: Any,
) -> dict[str, Any] | None:
    """A write of the function of `foreachBatch` of a micro-batch; None: nothing of it. `varies`:
    why it writes something else of another one. `started`: where its query is."""
    described, plan = _query(home, written, in_batch=True)
    options = described["options"]
    if not varies:  # where they are, they are of the function's own micro-batches
        described["options"] = {k: v for k, v in options.items() if k.lower() not in _OF_BATCHES}
    target = getattr(written.command, "target_table_name", "")
    plan, first, merged, assumes = (
        _merged(written.command, plan) if target else (plan, None, "", "")
    )
    path = annotate(plan).paths.get(batch)
    if path is None:
        return None
    by_record = not (path.writes or path.gates or path.within is Within.SEQUENCE)
    if not target and written.command.mode in _REPLACING[type(written.command).__name__]:
        varies = varies or "each micro-batch takes the place of what those before have written"
    elif not target and _first_only(written.command):
        varies = varies or "only the micro-batch that comes first is written"
    if varies:
        reason = varies
        plan = ir.Opaque(
            (query,), plan.columns, reason, position=written.position, left_open="place"
        )
        code = {"reason": reason}
    elif by_record:
        plan = texts.filled(plan, {batch: lambda: query})
        if not target:
            code = carried(home, written.command.input, written.views, {batch: stream})
    else:
        reason = "what is written depends on how the records are divided into micro-batches"
        plan = ir.Opaque((query,), plan.columns, reason, position=written.position)
        code = {"reason": reason}
    if target:
        code = {"reason": merged}
        plan = ir.Opaque(
            (plan,), plan.columns, merged, position=written.position, keys=first, assumes=assumes
        )
    fields = {"plan": plan_json.to_json(plan), "in_batch": True, "code": code, "started": started}
    return described | fields


def _first_only(command: Any) -> bool:
    """Whether a write is made only where nothing is there."""
    if command.mode not in _FIRST_ONLY[type(command).__name__]:
        return False
    inserts = getattr(getattr(command, "table", None), "save_method", 0) == _INSERTING
    return not inserts and getattr(command, "source", "").lower() not in _ADDING


def _anew(options: Mapping[str, str]) -> str:
    """Why a query that is started again begins anew; empty where it goes on."""
    place = next((v for k, v in options.items() if k.lower() == "checkpointlocation"), "")
    chance = Chance.of(place)
    if chance is not None and chance.decides:
        return "another one each time"
    removed = place and any(overlap(place, path) for path in outside.REMOVED if path.strip("/"))
    return "removed by the script" if removed else ""


def _merged(
    command: Any, plan: ir.Relation
) -> tuple[ir.Relation, tuple[ir.Expression, ...] | None, str, str]:
    """The rows that a merge takes, by which of their columns it tells them apart, what it does, and
    what has to be true of the rows.

    One that only inserts, of a micro-batch in which each key is once, inserts the first row of each
    key: which of a key's rows are in one micro-batch does not matter.
    """
    into = f"a merge into {command.target_table_name}"
    pairs = map(_TIE.fullmatch, re.split(r"(?i)\bAND\b", _text(command.merge_condition)))
    ties = [tie[2].lower() if tie is not None and tie[1] != tie[3] else "" for tie in pairs]
    keys, rows = _once(plan)
    if command.match_actions or command.not_matched_by_source_actions:
        once = keys and {key.name.lower() for key in keys} <= {*ties}
        alone = f"no two records of a micro-batch meet one row of {command.target_table_name}"
        assumes = (
            "" if once or not command.match_actions else f"{alone}, at which Spark stops the job"
        )
        reason = f"{into} keeps, of records with the same key, what came last"
        return plan, None, reason, assumes
    actions = [action.merge_action for action in command.not_matched_actions]
    inserts_all = all(
        action.action_type == INSERTING and not action.HasField("condition") for action in actions
    )
    if (
        inserts_all
        and len(actions) == 1
        and keys
        and {key.name.lower() for key in keys} == set(ties)
    ):
        return rows, tuple(map(ir.Ref, keys)), (
            f"{into} inserts the first record of each {', '.join(ties)}, and those without one in "
            "each micro-batch"
        ), ""  # fmt: skip
    reason = f"{into} inserts the records of a key that are in the first micro-batch"
    return plan, None, reason, ""


_TIE: Final = re.compile(r"\s*(\w+)\.(\w+)\s*==?\s*(\w+)\.(?i:\2)\s*")
"""A column of a table that equals the one of that name of another."""


def _text(condition: Any) -> str:
    """The condition of a merge, where it is made of columns that are equal."""
    match condition.WhichOneof("expr_type"):
        case "expression_string":
            return str(condition.expression_string.expression)
        case "unresolved_attribute":
            return str(condition.unresolved_attribute.unparsed_identifier)
        case "unresolved_function" if condition.unresolved_function.function_name in ("and", "=="):
            function = condition.unresolved_function
            return f" {function.function_name} ".join(map(_text, function.arguments))
    return ""


def _once(plan: ir.Relation) -> tuple[tuple[ir.Column, ...], ir.Relation]:
    """The columns of which a plan has each combination once, and the rows it chooses from."""
    match plan:
        case ir.Deduplicate():
            return plan.keys, plan.input
        case ir.Project():
            keys, below = _once(plan.input)
            names = {value.column: c for c, value in plan.outputs if isinstance(value, ir.Ref)}
            if keys and len(names) == len(plan.outputs) and names.keys() >= set(keys):
                return tuple(names[key] for key in keys), replace(plan, input=below)
    return (), plan


def _query(
    home: Reading, started: Started, *, in_batch: bool = False
) -> tuple[dict[str, Any], ir.Relation]:
    command = started.command
    described: dict[str, Any] = {"position": place_text(started.position)}
    for name in ("output_mode", "format", "query_name", "path", "table_name", "source"):
        if value := getattr(command, name, ""):
            described[name] = value
    if hasattr(command, "table") and command.HasField("table"):
        described["table_name"] = command.table.table_name
    if target := getattr(command, "target_table_name", ""):
        described |= {"format": "delta", "path" if "/" in target else "table_name": target}
    if not hasattr(command, "output_mode"):
        described["batch"] = True
    for name in ("foreach_batch", "foreach_writer"):
        if hasattr(command, name) and command.HasField(name):
            described[name] = True
    described["options"] = dict(getattr(command, "options", {}))
    for name in ("available_now", "once"):
        if getattr(command, name, None):
            described["trigger"] = "available now"
    interval = getattr(command, "processing_time_interval", "")
    if interval and not any(value in interval for value in outside.MADE):
        described["trigger"] = interval
    read = command.source_table_plan if target else command.input
    plan = home.plan(read, started.views, in_batch=in_batch)
    described["code"] = carried(home, read, started.views)
    if hasattr(command, "output_mode") and not any(source.comes for source in sources(plan)):
        # Spark starts no query that reads no stream: it lies in what is not known.
        home.sources.read.setdefault(outside.UNSEEN, {"format": "table", "streaming": True})
        stream = ir.Source(
            outside.UNSEEN, (), ir.Role.STREAM, complete=False, position=started.position
        )
        reason = "which stream it reads is not known here"
        plan = ir.Opaque(
            (stream, plan), plan.columns, reason, True, True, started.position, left_open="text"
        )
    place = [described.get("path"), described.get("table_name")]
    place += [value for key, value in described["options"].items() if key.lower() in _PLACES]
    drawn = [chance for chance in map(Chance.of, place) if chance is not None]
    if any(chance.decides or (in_batch and chance.of_file) for chance in drawn):
        plan = ir.Filter(plan, by_chance(started.position), started.position)
    if anew := _anew(described["options"]):
        outside.note(f"the checkpoint is {anew}: a job that starts again begins anew")
        described["anew"] = True
    described["plan"] = plan_json.to_json(plan)
    return described, plan
