"""The answers of the in-process channel to the Connect client, and what the questions tell.

Plans are kept as they come: temporary views, streaming queries that would start, commands of a
pipeline. Whatever would need data is refused with `Refused`, which says what the user called.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyspark
import pyspark.sql.connect.proto as pb

from annotations.dataflow import Position
from annotations.whitebox.connect.counts import Counts
from annotations.whitebox.connect.datatypes import ddl_type, struct_to_proto, to_proto
from annotations.whitebox.connect.texts import inside, named, with_arguments
from annotations.whitebox.datatypes import DataType, Family
from annotations.whitebox.following import outside, user_functions
from annotations.whitebox.following.outside import Asked, Refused
from annotations.whitebox.following.places import caller
from annotations.whitebox.settings import Settings

_CONF: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    "spark.sql.session.localRelationCacheThreshold": str(1 << 40),
    "spark.sql.session.localRelationSizeLimit": str(1 << 40),
    "spark.sql.session.localRelationChunkSizeRows": str(1 << 40),
    "spark.sql.session.localRelationChunkSizeBytes": str(1 << 40),
    "spark.sql.session.localRelationBatchOfChunksSizeBytes": str(1 << 40),
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
"""Settings that the client asks for and takes apart; every other one of Spark that is not set is
`false`, and one of the user's own stands for itself."""


APPLICATION: Final = "$pyspark.SparkContext.applicationId()"
"""What stands for everything that each start of a job has another one of."""


def _unset(key: str) -> str:
    if key in ("spark.app.id", "spark.app.startTime", "spark.app.attempt.id"):
        outside.Outside(APPLICATION)
        return APPLICATION
    if key.startswith("spark."):
        return "false"
    return outside.Outside(f"${key}")


_VIEW: Final = re.compile(
    r"\s*CREATE\s+(?:OR\s+REPLACE\s+)?(?:GLOBAL\s+)?TEMP(?:ORARY)?\s+VIEW\s+([\w.`]+)\s+AS\s+(.*)",
    re.IGNORECASE | re.DOTALL,
)
_VARIABLE: Final = re.compile(r"\$\{(?:(?:hive|spark)?conf:|hivevar:|spark:)?([\w.]+)\}")
"""A setting of the session whose value Spark puts into a statement."""
_DECLARED: Final = re.compile(
    r"\s*(?:DECLARE(?:\s+OR\s+REPLACE)?(?:\s+VAR(?:IABLE)?)?|SET\s+VAR(?:IABLE)?)\s+"
    r"(?:session\.)?`?(\w+)`?\s+(.*)",
    re.IGNORECASE | re.DOTALL,
)
"""A variable of the session and what becomes its value."""
_SET: Final = re.compile(r"\s*SET\s+`?([\w.]+)`?\s*=\s*(.*?)\s*;?\s*", re.IGNORECASE | re.DOTALL)
_NAME: Final = r"(?:[\w.]|`[^`]*`)+"
_MERGE: Final = re.compile(
    r"\s*(?:WITH\s+SCHEMA\s+EVOLUTION\s+)?MERGE\s+(?:WITH\s+SCHEMA\s+EVOLUTION\s+)?INTO\s+"
    rf"({_NAME}).*?\bUSING\s+({_NAME}|\()",
    re.IGNORECASE | re.DOTALL,
)
_ON: Final = re.compile(r"\bON\b((?:(?!\bWHEN\b).)*)", re.IGNORECASE | re.DOTALL)
_MATCHED: Final = re.compile(r"\bWHEN\s+MATCHED\b", re.IGNORECASE)
_INSERTED: Final = re.compile(
    rf"{_ON.pattern}WHEN\s+NOT\s+MATCHED\s+(?:BY\s+TARGET\s+)?THEN\s+INSERT\s*\*\s*;?\s*",
    re.IGNORECASE | re.DOTALL,
)
"""The condition and the action of a `MERGE` that only inserts whole rows."""
_INSERT: Final = re.compile(
    rf"\s*INSERT\s+(?:INTO|OVERWRITE)\s+(?:TABLE\s+)?({_NAME})\s*(?:\([^)]*\)\s*)?"
    r"((?:SELECT|WITH|FROM|TABLE)\b.*)",
    re.IGNORECASE | re.DOTALL,
)
_OVERWRITE: Final = re.compile(r"\s*INSERT\s+OVERWRITE\b", re.IGNORECASE)
_QUERY: Final = re.compile(r"(?:\s|\(|--.*\n|/\*.*?\*/)*(SELECT|WITH|FROM|VALUES|TABLE)\b", re.I)
_OPEN_TABLE: Final = re.compile(r"\b(?:FROM|JOIN)\s+`?\$[^\s.`]+`?(?=[\s);]|$)", re.I)
"""A table whose name is not known, and that may be a temporary view."""


INSERTING: Final = pb.MergeAction.ActionType.ACTION_TYPE_INSERT_STAR
"""What a merge does that inserts rows as they are."""


@dataclass(frozen=True)
class Started:
    """A streaming query that would start here, or a batch that would be written."""

    command: Any
    """`WriteStreamOperationStart` or `WriteOperation`."""
    views: dict[str, Any]
    """Temporary views as they were then: name -> Relation."""
    position: Position | None
    body: Any = None
    """The function of `foreachBatch`, or what `foreach` calls."""


@dataclass
class Answers:
    """The other end of the channel: one method for each method of the service."""

    schema_of: Callable[[Any, dict[str, Any]], list[tuple[str, DataType, bool]]]
    """Relation, views -> its columns: name, type, nullable."""
    streaming: Callable[[Any, dict[str, Any]], bool]
    """Relation, views -> whether it reads a stream."""
    conf: Settings = field(default_factory=Settings)
    variables: dict[str, str] = field(default_factory=dict)
    """Of the session, in SQL: name -> the text that gives its value."""
    views: dict[str, Any] = field(default_factory=dict)
    started: list[Started] = field(default_factory=list)
    pipeline: list[Any] = field(default_factory=list)
    bodies: dict[bytes, Any] = field(default_factory=dict)
    """What `foreachBatch` and `foreach` call, by what stands for it in the command."""
    functions: dict[str, Any] = field(default_factory=dict)
    """Registered functions: name -> CommonInlineUserDefinedFunction."""
    objects: dict[bytes, Any] = field(default_factory=dict)
    """Functions and other objects that would be sent to workers, by what stands for them."""
    counts: Counts | None = None
    """Of a micro-batch, while the function of `foreachBatch` is called."""
    server: str = field(default_factory=lambda: str(uuid.uuid4()))

    def _made(self, response: Any, request: Any, **parts: Any) -> Any:
        ids = {"session_id": request.session_id, "server_side_session_id": self.server}
        return response(**ids, **parts)

    def keep(self, value: Any) -> bytes:
        """The key that stands for a function with its type, or for another object, in a plan."""
        function = value[0] if isinstance(value, tuple) else value
        for key, known in self.objects.items():
            if known is function:
                return key
        key = str(len(self.objects)).encode()
        self.objects[key] = function
        user_functions.SHOWN[key] = user_functions.shown(function)
        return key

    def taken(self) -> list[Started]:
        """The writes that were started since the last call."""
        started = [*self.started]
        self.started.clear()
        return started

    # ---- settings

    def Config(self, request: Any) -> Any:  # noqa: N802
        """Settings, set and read back."""
        operation = request.operation
        kind = operation.WhichOneof("op_type")
        asked = getattr(operation, kind)
        answered: list[tuple[str, str | None]] = []
        match kind:
            case "set":
                self.conf.update({pair.key: pair.value for pair in asked.pairs})
            case "unset":
                for key in asked.keys:
                    self.conf.pop(key, None)
            case "get":
                answered = [(k, self.conf.get(k, _CONF.get(k, _unset(k)))) for k in asked.keys]
            case "get_option":
                answered = [(k, self.conf.get(k, _CONF.get(k))) for k in asked.keys]
            case "get_with_default":
                for pair in asked.pairs:
                    answered.append((pair.key, self.conf.get(pair.key, pair.value)))
            case "get_all":
                answered = list(self.conf.items())
            case "is_modifiable":
                answered = [(key, "true") for key in asked.keys]
        pairs = [pb.KeyValue(key=key, value=value) for key, value in answered]
        return self._made(pb.ConfigResponse, request, pairs=pairs)

    # ---- questions about plans

    def AnalyzePlan(self, request: Any) -> Any:  # noqa: N802
        """Schemas, types and the like."""
        kind = request.WhichOneof("analyze")
        response = self._made(pb.AnalyzePlanResponse, request)
        match kind:
            case "schema":
                columns = self.schema_of(request.schema.plan.root, self.views)
                struct_to_proto(columns, response.schema.schema)
            case "is_streaming":
                root = request.is_streaming.plan.root
                response.is_streaming.is_streaming = self.streaming(root, self.views)
            case "is_local":
                response.is_local.is_local = False
            case "spark_version":
                response.spark_version.version = pyspark.__version__
            case "ddl_parse":
                parsed = ddl_type(request.ddl_parse.ddl_string)
                if parsed.family is Family.UNKNOWN:
                    raise Refused(f"not a type: {request.ddl_parse.ddl_string}")
                to_proto(parsed, response.ddl_parse.parsed)
            case "same_semantics":
                same = request.same_semantics
                response.same_semantics.result = same.target_plan == same.other_plan
            case "explain":
                response.explain.explain_string = ""
            case "tree_string":
                response.tree_string.tree_string = ""
            case "persist" | "unpersist" | "get_storage_level" | "semantic_hash":
                getattr(response, kind).SetInParent()
            case _:
                raise Refused(f"`{kind}` asks about data")
        return response

    # ---- commands

    def ExecutePlan(self, request: Any) -> Iterator[Any]:  # noqa: N802
        """Commands are noted; plans are not executed."""
        if request.plan.WhichOneof("op_type") == "root":
            parts = self._root(request.plan.root)
        else:
            parts = self._command(request.plan.command)
        responses = [*parts, {"result_complete": pb.ExecutePlanResponse.ResultComplete()}]
        for part in responses:
            ids = {"operation_id": request.operation_id, "response_id": str(uuid.uuid4())}
            yield self._made(pb.ExecutePlanResponse, request, **ids, **part)

    def _root(self, relation: Any) -> list[dict[str, Any]]:
        kind = relation.WhichOneof("rel_type")
        if kind == "catalog":
            exists = (relation.catalog.WhichOneof("cat_type") or "").endswith("_exists")
            return [_answer(exists)]
        if kind in ("show_string", "html_string"):
            return [_text("")]
        if self.counts is not None and kind == "limit":
            inner = relation.limit.input
            if inner.WhichOneof("rel_type") == "project" and not inner.project.expressions:
                count = self.counts.of(inner.project.input)
                return [_rows(min(count, relation.limit.limit))]  # isEmpty
        if self.counts is not None and kind == "aggregate":
            aggregate = relation.aggregate
            (counted, *more) = aggregate.aggregate_expressions
            name = counted.alias.expr.unresolved_function.function_name or (
                counted.unresolved_function.function_name
            )
            if name == "count" and not (more or aggregate.grouping_expressions):
                return [_count(self.counts.of(aggregate.input))]
        refused = Asked if self.counts is None else Refused
        raise refused("an action needs data: only what describes a computation can be read")

    def _command(self, command: Any) -> list[dict[str, Any]]:
        kind = command.WhichOneof("command_type")
        match kind:
            case "sql_command":
                return self._sql(command.sql_command)
            case "create_dataframe_view":
                view = command.create_dataframe_view
                self.views[f"global_temp.{view.name}" if view.is_global else view.name] = view.input
            case "register_function":
                self.functions[command.register_function.function_name.lower()] = (
                    command.register_function
                )
            case "write_stream_operation_start":
                start = command.write_stream_operation_start
                handed = start.foreach_batch if start.HasField("foreach_batch") else None
                handed = start.foreach_writer if start.HasField("foreach_writer") else handed
                body = handed and self.bodies.get(handed.python_function.command)
                self.started.append(Started(start, dict(self.views), caller(), body))
                id_ = pb.StreamingQueryInstanceId(id=str(uuid.uuid4()), run_id=str(uuid.uuid4()))
                started = pb.WriteStreamOperationStartResult(query_id=id_, name=start.query_name)
                return [{"write_stream_operation_start_result": started}]
            case "write_operation" | "write_operation_v2" | "merge_into_table_command":
                written = getattr(command, kind)
                self.started.append(Started(written, dict(self.views), caller()))
            case "streaming_query_command":
                return [_query_answer(command.streaming_query_command)]
            case "streaming_query_manager_command":
                return [_manager_answer(command.streaming_query_manager_command)]
            case "pipeline_command":
                return [self._pipeline(command.pipeline_command)]
            case "register_table_function" | "register_data_source":
                pass
            case "streaming_query_listener_bus_command" | "remove_cached_remote_relation_command":
                pass
            case _:
                raise Refused(f"`{kind}` needs a running Spark")
        return []

    def _sql(self, command: Any) -> list[dict[str, Any]]:
        """A query becomes a plan, with the views that it may read; a view is noted."""
        given = command.input if command.HasField("input") else None
        root = given
        if given is not None and given.WhichOneof("rel_type") == "with_relations":
            root = given.with_relations.root
        text = _VARIABLE.sub(
            lambda name: self.conf.get(name[1], name[0]),
            with_arguments(root.sql) if root is not None else command.sql,
        )
        text = named(text, self.views)
        outside.changing(text)
        if setting := _SET.fullmatch(text):
            self.conf[setting[1]] = setting[2]
        if declared := _DECLARED.match(text):
            self.variables[declared[1].lower()] = declared[2].replace("*/", "")
        words = {word.lower() for word in re.findall(r"\w+", text)}
        text += "".join(f" /* {v} {self.variables[v]} */" for v in self.variables if v in words)
        relation = pb.Relation()
        if root is None:
            relation.sql.query = text
        else:
            root.sql.query = text
            relation.CopyFrom(given)
        if view := _VIEW.match(text):
            (relation if root is given else relation.with_relations.root).sql.query = view[2]
            self.views[view[1].strip("`")] = self._with_views(relation, view[2])
            relation = pb.Relation()
            relation.local_relation.schema = "struct<>"
        elif written := _MERGE.match(text) or _INSERT.match(text):
            self._written(written, merge=_MERGE.match(text) is not None)
            relation = pb.Relation()
            relation.local_relation.schema = "struct<>"
        elif (not _QUERY.match(text) or (self.views and _OPEN_TABLE.search(text))) and any(
            name in text for name in outside.MADE
        ):
            relation = self._of_views(f"the query `{text.strip()[:60]}` is not known here")
        elif not _QUERY.match(text):
            relation = pb.Relation()
            relation.local_relation.schema = "struct<>"
        else:
            relation = self._with_views(relation, text)
        result = pb.ExecutePlanResponse.SqlCommandResult(relation=relation)
        return [{"sql_command_result": result}]

    def _written(self, match: re.Match[str], *, merge: bool) -> None:
        """Note the rows that `MERGE INTO` and `INSERT INTO` write, and where."""
        target = match[1].replace("`", "")
        target = target.removeprefix("delta.") if "/" in target else target
        query = f"SELECT * FROM {match[2]}" if merge else match[2]
        if merge and match[2] == "(":
            query = inside(match.string, match.end())
        relation = pb.Relation()
        relation.sql.query = query
        read = self._with_views(relation, query)
        command: Any
        if merge:
            command = pb.MergeIntoTableCommand(target_table_name=target, source_table_plan=read)
            if on := _ON.search(match.string, match.end()):
                command.merge_condition.expression_string.expression = on[1]
            inserted = _INSERTED.search(match.string, match.end())
            if _MATCHED.search(match.string, match.end()):
                command.match_actions.add()
            elif inserted and inserted.end() == len(match.string):
                command.not_matched_actions.add().merge_action.action_type = INSERTING
            else:
                command.not_matched_by_source_actions.add()
        else:
            mode = pb.WriteOperationV2.Mode
            over = mode.MODE_OVERWRITE if _OVERWRITE.match(match[0]) else mode.MODE_APPEND
            command = pb.WriteOperationV2(table_name=target, input=read, mode=over)
        self.started.append(Started(command, dict(self.views), caller()))

    def _of_views(self, reason: str) -> Any:
        """A query that is not known: it may read any of the temporary views."""
        product = pb.Relation()
        for name in self.views:
            view = pb.Relation()
            view.subquery_alias.alias = name
            view.subquery_alias.input.CopyFrom(self.views[name])
            if product.WhichOneof("rel_type") is None:
                product = view
                continue
            both = pb.Relation()
            both.join.left.CopyFrom(product)
            both.join.right.CopyFrom(view)
            both.join.join_type = pb.Join.JOIN_TYPE_CROSS
            product = both
        if product.WhichOneof("rel_type") is None:
            product.local_relation.schema = "struct<>"
        result = pb.Relation()
        result.hint.input.CopyFrom(product)
        result.hint.name = outside.UNREAD
        result.hint.parameters.add().literal.string = reason
        return result

    def _with_views(self, relation: Any, text: str) -> Any:
        """The query with the temporary views that its text may mean, as they are now."""
        words = {word.lower() for word in re.findall(r"[\w.]+", text)}
        used = {name: view for name, view in self.views.items() if name.lower() in words}
        if not used:
            return relation
        result = pb.Relation()
        if relation.WhichOneof("rel_type") == "with_relations":
            result.CopyFrom(relation)
        else:
            result.with_relations.root.CopyFrom(relation)
        for name, view in used.items():
            reference = result.with_relations.references.add()
            reference.subquery_alias.alias = name
            reference.subquery_alias.input.CopyFrom(view)
        return result

    def _pipeline(self, command: Any) -> dict[str, Any]:
        self.pipeline.append(command)
        result = pb.PipelineCommandResult()
        if command.WhichOneof("command_type") == "create_dataflow_graph":
            result.create_dataflow_graph_result.dataflow_graph_id = "graph"
        return {"pipeline_command_result": result}

    # ---- the rest of the service

    def AddArtifacts(self, requests: list[Any]) -> Any:  # noqa: N802
        """Files for workers that do not exist."""
        return pb.AddArtifactsResponse()

    def ArtifactStatus(self, request: Any) -> Any:  # noqa: N802
        """Whatever is asked for is there already."""
        response = self._made(pb.ArtifactStatusesResponse, request)
        for name in request.names:
            response.statuses[name].exists = True
        return response

    def ReleaseExecute(self, request: Any) -> Any:  # noqa: N802
        """Nothing was kept."""
        return self._made(pb.ReleaseExecuteResponse, request)

    def ReleaseSession(self, request: Any) -> Any:  # noqa: N802
        """The end of the session."""
        return self._made(pb.ReleaseSessionResponse, request)

    def Interrupt(self, request: Any) -> Any:  # noqa: N802
        """Nothing is running."""
        return self._made(pb.InterruptResponse, request)

    def __getattr__(self, method: str) -> Any:
        """Every other method of the service: looked up by the client, refused when it is called."""
        if not method[:1].isupper():
            raise AttributeError(method)

        def refuse(*_: object) -> Any:
            raise Refused(f"`{method}` needs a running Spark")

        return refuse


def _query_answer(command: Any) -> dict[str, Any]:
    """A streaming query that has ended well, without having run."""
    ended = pb.StreamingQueryCommandResult.AwaitTerminationResult(terminated=True)
    result = pb.StreamingQueryCommandResult(query_id=command.query_id, await_termination=ended)
    if command.WhichOneof("command") == "status":
        status = pb.StreamingQueryCommandResult.StatusResult(status_message="not running")
        result = pb.StreamingQueryCommandResult(query_id=command.query_id, status=status)
    elif command.WhichOneof("command") in ("recent_progress", "last_progress"):
        progress = pb.StreamingQueryCommandResult.RecentProgressResult()
        result = pb.StreamingQueryCommandResult(query_id=command.query_id, recent_progress=progress)
    return {"streaming_query_command_result": result}


def _manager_answer(command: Any) -> dict[str, Any]:
    """Every query has ended, none is active."""
    results = pb.StreamingQueryManagerCommandResult
    if command.WhichOneof("command") == "active":
        answer = results(active=results.ActiveResult())
    else:
        answer = results(await_any_termination=results.AwaitAnyTerminationResult(terminated=True))
    return {"streaming_query_manager_command_result": answer}


def _answer(value: bool) -> dict[str, Any]:
    """One record with one boolean. Whatever a catalog is asked for exists: a job that runs for
    the second time is read."""
    import pyarrow

    return _table(pyarrow.table({"value": [value]}))


def _rows(number: int) -> dict[str, Any]:
    """So many records without a column that matters."""
    import pyarrow

    return _table(pyarrow.table({"value": [True] * number}))


def _count(number: int) -> dict[str, Any]:
    import pyarrow

    return _table(pyarrow.table({"count": pyarrow.array([number], pyarrow.int64())}))


def _text(value: str) -> dict[str, Any]:
    import pyarrow

    return _table(pyarrow.table({"show_string": [value]}))


def _table(table: Any) -> dict[str, Any]:
    import pyarrow

    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        for batch in table.to_batches() or [pyarrow.RecordBatch.from_pylist([], table.schema)]:
            writer.write_batch(batch)
    data = sink.getvalue().to_pybytes()
    batch = pb.ExecutePlanResponse.ArrowBatch(row_count=table.num_rows, data=data)
    return {"arrow_batch": batch}
