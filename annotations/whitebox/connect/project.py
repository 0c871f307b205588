"""A Declarative Pipelines project: its definitions are run, its datasets and flows noted.

PySpark's own loader finds and runs the files (`pyspark.pipelines.cli`); the commands that it would
send to a server arrive at `Answers` instead. Flows refer to each other's datasets by name, so that
plans are made in the order in which columns become known.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir, plan_json
from annotations.whitebox.connect import texts
from annotations.whitebox.connect.carrying import carried
from annotations.whitebox.connect.datatypes import ddl_type, from_proto
from annotations.whitebox.connect.reading import Reading
from annotations.whitebox.datatypes import DataType
from annotations.whitebox.file_metadata import METADATA, NAME
from annotations.whitebox.following.outside import UNSEEN, Outside, Refused
from annotations.whitebox.following.statements import NotUnderstood, statements
from annotations.whitebox.type_text import schema_text

_KINDS: Final = {
    1: "materialized view",
    2: "streaming table",
    3: "temporary view",
    4: "sink",
}
"""Connect's types of outputs."""


@dataclass
class Flow:
    """The source that fills a dataset: a relation, a text of SQL, or change data."""

    name: str
    target: str
    position: Position
    relation: Any = None
    query: str | None = None
    query_at: Position | None = None
    source: str | None = None
    keys: tuple[str, ...] = ()
    history: bool = False
    snapshots: bool = False
    """The source is a table that is compared with what it was at the last update."""
    plan: ir.Relation | None = None
    code: dict[str, Any] | None = None


@dataclass
class Project:
    """The datasets, flows and problems that the definitions give."""

    datasets: dict[str, dict[str, Any]] = field(default_factory=dict)
    flows: list[Flow] = field(default_factory=list)
    problems: list[tuple[str, Position]] = field(default_factory=list)
    columns: dict[str, tuple[tuple[str, DataType, bool], ...]] = field(default_factory=dict)
    """Columns of datasets, as far as they are known by now."""
    files: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Files that queries in SQL read by functions (`read_files`): name -> what is read."""


def read_project(
    reading: Reading, spec_path: Path, register: Callable[[Any, Any], None] | None = None
) -> dict[str, Any]:
    """The project of a specification file, as a value for JSON.

    `register` gives the definitions of its files to a registry; without it, PySpark runs them.
    """
    from pyspark.pipelines import cli
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )
    from pyspark.pipelines.spark_connect_pipeline import create_dataflow_graph

    spec = cli.load_pipeline_spec(spec_path)
    reading.answers.conf.update(spec.configuration)
    graph = create_dataflow_graph(
        reading.spark, spec.catalog, spec.database, dict(spec.configuration)
    )
    registry = SparkConnectGraphElementRegistry(reading.spark, graph)
    if register is not None:
        register(spec, registry)
    else:
        with contextlib.redirect_stderr(io.StringIO()):
            cli.register_definitions(spec_path, registry, spec, reading.spark, graph)
    project = Project()
    for command in reading.answers.pipeline:
        _note(project, command, spec_path.parent)
    return _as_json(reading, project, spec.name)


@contextlib.contextmanager
def registration(reading: Reading) -> Iterator[None]:
    """Inside, what `pyspark.pipelines` defines is noted, as in a project."""
    from pyspark.pipelines.graph_element_registry import graph_element_registration_context
    from pyspark.pipelines.spark_connect_graph_element_registry import (
        SparkConnectGraphElementRegistry,
    )

    with graph_element_registration_context(
        SparkConnectGraphElementRegistry(reading.spark, "graph")
    ):
        yield


def script_project(
    reading: Reading,
    project: Project,
    functions: Sequence[tuple[Flow, Callable[[], Any]]],
    path: Path,
) -> dict[str, Any]:
    """The pipeline that one file defines, as a value for JSON."""
    for command in reading.answers.pipeline:
        _note(project, command, path.parent)
    reading.sources.taken = frozenset(name.lower() for name in project.datasets)
    for flow, function in functions:
        with reading.failures() as failed:
            frame = function()
            if isinstance(frame, Outside):
                raise Refused(f"what `{frame[1:]}` gives is not known here")
            flow.relation = frame._plan.to_proto(reading.spark.client).root
            dataset = project.datasets.get(flow.target, {})
            if dataset.get("kind") == "table":
                streams = reading.answers.streaming(flow.relation, reading.answers.views)
                dataset["kind"] = "streaming table" if streams else "materialized view"
        if failed:
            at = flow.position if failed["position"] is None else Position(*failed["position"])
            flow.plan = ir.Opaque((), (), failed["error"], nondeterministic=True, position=at)
            flow.plan = _seen(project, flow.plan, at)
            project.problems.append((failed["error"], at))
    return _as_json(reading, project, path.stem)


def _seen(project: Project, plan: ir.Relation, at: Position) -> ir.Relation:
    """The plan, over a stream that is not known where not even its inputs are."""
    nodes = list(ir.nodes_of(plan))
    why = next((node.reason for node in nodes if isinstance(node, ir.Opaque)), None)
    if why is None or any(isinstance(node, ir.Source) for node in nodes):
        return plan
    project.files.setdefault(UNSEEN, {"format": "table", "streaming": True})
    stream = ir.Source(UNSEEN, (), ir.Role.STREAM, complete=False, position=at)
    return ir.Opaque((stream,), (), why, nondeterministic=True, position=at, left_open="text")


def read_sql(reading: Reading, path: Path) -> dict[str, Any]:
    """The pipeline of one file of SQL, as a value for JSON."""
    project = Project()
    _note_sql(project, path.read_text(encoding="utf-8-sig"), str(path))
    return _as_json(reading, project, path.stem)


def _as_json(reading: Reading, project: Project, name: str) -> dict[str, Any]:
    reading.sources.taken = frozenset(name.lower() for name in project.datasets)
    reading.sources.read.clear()
    reading.sources.read.update(project.files)
    _plan_all(reading, project)
    reading.sources.read.update(project.files)
    return {
        "name": name,
        "datasets": project.datasets,
        "flows": [_flow_json(flow) for flow in project.flows],
        "sources": reading.external(),
        "problems": [[text, *_place(at)] for text, at in project.problems],
    }


def _note(project: Project, command: Any, folder: Path) -> None:
    kind = command.WhichOneof("command_type")
    if kind == "define_output":
        output = command.define_output
        details = output.table_details
        project.datasets[output.output_name] = {
            "kind": _KINDS.get(output.output_type, "dataset"),
            "comment": output.comment,
            "position": _place(_location(output.source_code_location)),
            "format": output.sink_details.format or details.format,
            "options": dict(output.sink_details.options),
        }
        if details.HasField("schema_data_type"):
            project.columns[output.output_name] = from_proto(details.schema_data_type).fields
        elif details.schema_string:
            project.columns[output.output_name] = ddl_type(details.schema_string).fields
    elif kind == "define_flow":
        project.flows.append(_python_flow(command.define_flow))
    elif kind == "define_sql_graph_elements":
        elements = command.define_sql_graph_elements
        _note_sql(project, elements.sql_text, str(folder / elements.sql_file_path))


def _python_flow(flow: Any) -> Flow:
    name = flow.flow_name or flow.target_dataset_name
    at = _location(flow.source_code_location)
    if flow.WhichOneof("details") == "relation_flow_details":
        relation = flow.relation_flow_details.relation
        return Flow(name, flow.target_dataset_name, at, relation=relation)
    change = flow.auto_cdc_flow_details
    keys = tuple(key.unresolved_attribute.unparsed_identifier for key in change.keys)
    history = change.stored_as_scd_type == 2
    target = flow.target_dataset_name
    return Flow(name, target, at, source=change.source, keys=keys, history=history)


def _note_sql(project: Project, text: str, file: str) -> None:
    text = texts.without_live(texts.files_by_name(text, project.files))
    for statement in statements(text):
        if isinstance(statement, NotUnderstood):
            project.problems.append((str(statement), Position(file, statement.line, 1)))
            continue
        at = Position(file, statement.line, 1)
        if statement.kind is not None:
            project.datasets[statement.target] = {"kind": statement.kind, "position": _place(at)}
        if statement.query is not None or statement.source is not None:
            query_at = Position(file, statement.query_line, 1)
            flow = Flow(statement.name, statement.target, at, None, statement.query, query_at)
            flow.source, flow.keys, flow.history = (
                statement.source,
                statement.keys,
                statement.history,
            )
            project.flows.append(flow)


# ---- plans


def _plan_all(reading: Reading, project: Project) -> None:
    """Plan each flow when the columns of what it reads are known, or when nothing else helps."""
    waiting = [flow for flow in project.flows if flow.plan is None]
    while waiting:
        ready = [flow for flow in waiting if not _lacking(flow, waiting, project)] or waiting[:1]
        for flow in ready:
            flow.plan = _seen(project, _plan(reading, project, flow), flow.position)
            if project.datasets.get(flow.target, {}).get("format") == "foreachBatch":
                reason = f"what the function of the sink `{flow.target}` does is not read"
                inputs, columns = (flow.plan,), flow.plan.columns
                flow.plan = ir.Opaque(inputs, columns, reason, position=flow.position)
            known = [(c.name, c.type, c.nullable) for c in flow.plan.columns]
            relation = flow.relation if flow.query is None else _sql(flow.query)
            grows = reading.grows(relation, flow.plan)
            if known and not (grows or isinstance(flow.plan, ir.Opaque)):
                project.columns.setdefault(flow.target, tuple(known))
        waiting = [flow for flow in waiting if flow.plan is None]


def _lacking(flow: Flow, waiting: list[Flow], project: Project) -> set[str]:
    """Datasets that the flow reads and whose columns another flow has yet to tell."""
    to_come = {other.target for other in waiting if other is not flow}
    return {name for name in _reads(flow, project) if name in to_come} - set(project.columns)


def _reads(flow: Flow, project: Project) -> Iterator[str]:
    if flow.source is not None:
        yield texts.without_live(flow.source).strip()
    elif flow.query is not None:
        words = {word.lower() for word in texts.words(flow.query)}
        for name in project.datasets:
            if name.lower() in words or name.rpartition(".")[2].lower() in words:
                yield name
    else:
        for name, _ in _tables(flow.relation):
            if name in project.datasets:
                yield name


def _plan(reading: Reading, project: Project, flow: Flow) -> ir.Relation:
    snapshot = project.datasets.get(flow.target, {}).get("kind") == "materialized view"
    schemas: dict[str, Any] = {}
    streams = {name for name, streaming in _tables(flow.relation) if streaming}
    streams |= texts.streams(flow.query or "")
    for name in _reads(flow, project):
        # Of a dataset that is read as a batch, a materialized view sees all records that come.
        live = snapshot or name in streams or flow.source is not None
        typed = project.columns.get(name)
        columns = None if typed is None else {n: schema_text(t) + _null(m) for n, t, m in typed}
        schemas[name] = {"columns": columns, "role": "stream" if live else "mutable"}
    reading.sources.declare(schemas)
    try:
        if flow.source is not None:
            flow.code = {"reason": "it applies changes by key (AUTO CDC)"}
            return changes(reading, flow)
        if flow.query is not None:
            tables = _tables_of(reading, flow)
            flow.code = carried(reading, _sql(flow.query), {})
            return texts.query(flow.query, tables, flow.query_at, lines=True)
        plan = reading.plan(flow.relation)
        flow.code = carried(reading, flow.relation, reading.answers.views)
        return plan
    except Exception as failed:
        reason = f"{type(failed).__name__}: {failed}".partition("\n")[0]
        inputs = tuple(_source(reading, name) for name in schemas)
        return ir.Opaque(inputs, (), reason, position=flow.position, left_open="text")


def _sql(query: str) -> Any:
    """A text of SQL as a relation."""
    import pyspark.sql.connect.proto as pb

    relation = pb.Relation()
    relation.sql.query = query
    return relation


def _tables_of(reading: Reading, flow: Flow) -> dict[str, texts.Table]:
    """The tables that the query of a flow can read: the project's, and those of other schemas."""
    query = flow.query or ""
    read_as_streams = texts.streams(query)
    for name, described in project_files(reading, query):
        columns = tuple((n, *_typed(t)) for n, t in described.get("columns", ()))
        if columns and NAME in query.lower():
            columns += ((NAME, METADATA, True),)
        role = ir.Role.STREAM if described["streaming"] else ir.Role.MUTABLE
        reading.sources.declared[name] = (columns or None, role)
    known = {name.lower() for name in reading.sources.declared}
    outside = {name for name in read_as_streams | texts.tables(query) if name.lower() not in known}
    for name in outside:
        role = ir.Role.STREAM if name in read_as_streams else ir.Role.MUTABLE
        reading.sources.declared[name] = (None, role)
        source_options = {"format": "table", "streaming": name in read_as_streams}
        reading.sources.read.setdefault(name, source_options)
    return {name: partial(_source, reading, name) for name in reading.sources.declared}


def project_files(reading: Reading, query: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Files that a query reads, under the names that stand for them."""
    words = set(texts.words(query))
    for name, described in reading.sources.read.items():
        if name in words and described.get("format") == "cloudFiles":
            yield name, described


def _typed(text: str) -> tuple[DataType, bool]:
    return ddl_type(text), True


def _null(nullable: bool) -> str:
    return "" if nullable else " NOT NULL"


def _source(reading: Reading, name: str) -> ir.Relation:
    typed, role = reading.sources.declared[name]
    columns = () if typed is None else tuple(ir.Column(n, t, m) for n, t, m in typed)
    return ir.Source(name, columns, role, complete=typed is not None)


def changes(reading: Reading, flow: Flow) -> ir.Relation:
    """AUTO CDC: of the events of a key the last by sequence (or every one, with its successor).

    Nothing says that no two events of a key have the same sequence, so that their order of arrival
    may decide: like `max_by`, or `lead` over the key.
    """
    source = _source(reading, texts.without_live(flow.source or "").strip())
    if flow.snapshots:
        reason = "what changes depends on when a snapshot is compared with the one before"
        return ir.Opaque((source,), (), reason, True, True, position=flow.position)
    if isinstance(source, ir.Source) and not source.complete:
        source = replace(source, columns=tuple(map(ir.Column, (*flow.keys, "__rest"))))
    by_name = {column.name.lower(): column for column in source.columns}
    keys = [by_name.get(key.lower()) for key in flow.keys]
    refs = tuple(ir.Ref(column) for column in keys if column is not None)
    if len(refs) < len(flow.keys) or not refs:
        return ir.Opaque(
            (source,), (), "change data whose keys are not known", position=flow.position
        )
    others = [c for c in source.columns if c not in keys]
    at = flow.position
    if flow.history:
        ends = ir.Column("__END_AT")
        successor = ir.Call("lead", (refs[0],), position=at)
        return ir.Window(source, ((ends, successor),), refs, (), position=at)
    outputs = [(ir.Column(ref.column.name, ref.column.type), ref) for ref in refs]
    latest: list[tuple[ir.Column, ir.Expression]] = [
        (ir.Column(c.name, c.type), ir.Call("max_by", (ir.Ref(c), refs[0]), c.type, position=at))
        for c in others
    ]
    return ir.Aggregate(source, refs, (*outputs, *latest), None, at)


def _tables(message: Any) -> Iterator[tuple[str, bool]]:
    """(name, streaming) of the tables that a relation reads."""
    todo = [] if message is None else [message]
    while todo:
        relation = todo.pop()
        if relation.DESCRIPTOR.full_name == "spark.connect.Read" and relation.HasField(
            "named_table"
        ):
            name = relation.named_table.unparsed_identifier.replace("`", "")
            yield texts.without_live(name).strip(), relation.is_streaming
        elif relation.DESCRIPTOR.full_name == "spark.connect.SQL":
            query = texts.without_live(relation.query)
            streamed = texts.streams(query)
            yield from ((name, name in streamed) for name in texts.tables(query) | streamed)
        for descriptor, value in relation.ListFields():
            message_type = descriptor.message_type
            if message_type is None or message_type.GetOptions().map_entry:
                continue
            todo.extend(value if descriptor.is_repeated else (value,))


# ---- as values


def _location(place: Any) -> Position:
    return Position(place.file_name, place.line_number or 1, 1)


def _place(position: Position) -> list[Any]:
    return [position.file, position.line, position.column]


def _flow_json(flow: Flow) -> dict[str, Any]:
    assert flow.plan is not None
    described: dict[str, Any] = {
        "name": flow.name,
        "target": flow.target,
        "position": _place(flow.position),
        "plan": plan_json.to_json(flow.plan),
    }
    if flow.query is not None:
        described["query"] = flow.query.strip()
    if flow.code is not None:
        described["code"] = flow.code
    return described
