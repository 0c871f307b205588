"""The leaves of a plan: sources, rows in the code, SQL texts."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect import texts
from annotations.whitebox.connect.datatypes import ddl_type, from_proto
from annotations.whitebox.connect.relations import Converter, Relations
from annotations.whitebox.connect.scope import Built
from annotations.whitebox.datatypes import UNKNOWN, DataType
from annotations.whitebox.file_metadata import hidden
from annotations.whitebox.ir import Column, Relation


def _read(home: Relations, proto: Any, at: Position | None) -> Built:
    if proto.WhichOneof("read_type") == "named_table":
        name = proto.named_table.unparsed_identifier
        view = home.views.get(name)
        if view is not None:
            inner = home.build(view)
            return home.called(inner, name, at)
    else:
        name = ""
    source = home.source_of(proto, at)
    if source is None:
        reason = f"what `{name or proto.data_source.format}` reads is not known"
        return home.user_code([], reason, at)
    built = home.node(source, [], tuple(c for c in source.columns if not hidden(c)))
    return home.called(built, name, at) if name else built


def _local_relation(home: Relations, proto: Any, at: Position | None) -> Built:
    schema = _local_schema(proto)
    columns = tuple(Column(name, type_, null) for name, type_, null in schema)
    return home.node(ir.Source("(rows in the code)", columns, ir.Role.TABLE, position=at), [])


def _local_schema(proto: Any) -> list[tuple[str, DataType, bool]]:
    """Names and types of rows that stand in the code: declared, or of the Arrow table sent."""
    if proto.schema.startswith("{"):
        from pyspark.sql.connect.types import pyspark_types_to_proto_types
        from pyspark.sql.types import StructType

        struct = StructType.fromJson(json.loads(proto.schema))
        return list(from_proto(pyspark_types_to_proto_types(struct)).fields)
    if proto.schema:
        return list(ddl_type(proto.schema).fields)
    import pyarrow

    schema = pyarrow.ipc.open_stream(proto.data).schema
    return [(field.name, UNKNOWN, field.nullable) for field in schema]


def _range(home: Relations, proto: Any, at: Position | None) -> Built:
    column = Column("id", ddl_type("bigint"), False)
    return home.node(ir.Source("range", (column,), ir.Role.TABLE, position=at), [])


def _sql(home: Relations, proto: Any, at: Position | None) -> Built:
    import pyspark.sql.connect.proto as pb

    query = texts.without_live(proto.query)
    read_here = texts.tables(query) - {"range"}
    lower, streamed = {name.lower() for name in read_here}, texts.streams(query)
    tables = {
        name: _occurrence(home, relation)
        for name, relation in home.references.items()
        if name.lower() in lower
    }
    known = {name.lower() for name in tables}
    for name in read_here:
        if name.lower() not in known:
            read = pb.Relation()
            read.read.named_table.unparsed_identifier = name
            read.read.is_streaming = name in streamed
            tables[name] = _occurrence(home, read)
    built = home.node(home.query_of(query, tables, at), [])
    if proto.pos_arguments or proto.named_arguments or proto.args or proto.pos_args:
        return home.user_code([built], "a query with parameters that are not known", at)
    return built


def _occurrence(home: Relations, relation: Any) -> Callable[[], Relation]:
    """The maker of a table of a query; of one that is no view, the query tells the columns."""
    name = relation.read.named_table.unparsed_identifier

    def occurrence() -> Relation:
        table = home.source_of(relation.read, None) if name and name not in home.views else None
        return home.plan(relation) if table is None else table

    return occurrence


def _with_relations(home: Relations, proto: Any, at: Position | None) -> Built:
    outer = home.references
    aliases = [r.subquery_alias for r in proto.references if r.HasField("subquery_alias")]
    if len(aliases) < len(proto.references):
        return _opaque_references(home, proto, at)
    home.references = {alias.alias: alias.input for alias in aliases}
    try:
        return home.build(proto.root)
    finally:
        home.references = outer


def _opaque_references(home: Relations, proto: Any, at: Position | None) -> Built:
    inside = [home.build(proto.root), *(home.build(reference) for reference in proto.references)]
    return home.user_code(inside, "a subquery made of DataFrames", at)


CONVERTERS: Final[dict[str, Converter]] = {
    "read": _read,
    "local_relation": _local_relation,
    "range": _range,
    "sql": _sql,
    "with_relations": _with_relations,
}
"""Kind of a relation -> what makes its plan."""
