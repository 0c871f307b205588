"""A query of the Connect client as the text of a function in PySpark: `blazes import` writes it.

The function has a parameter for each stream that the query reads, and returns what the query
writes. What has no text here raises `NotWritten`; then nothing is carried of the query.
"""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from annotations.whitebox import ir
from annotations.whitebox.connect.definitions import Definitions
from annotations.whitebox.connect.expression_text import (
    ExpressionText,
    NotWritten,
    ddl,
    quoted,
    type_text,
)
from annotations.whitebox.connect.expressions import title
from annotations.whitebox.connect.relations import Relations
from annotations.whitebox.connect.scope import split
from annotations.whitebox.following.outside import UNREAD
from annotations.whitebox.sql_dialect import without_streams

_JOINS: Final = {1: "inner", 2: "full", 3: "left", 4: "right", 5: "anti", 6: "semi", 7: "cross"}
_LINE: Final = 88
_SIDE: Final = 48
"""Letters of an argument that is written where it is used."""
_ROWS_MAX: Final = 100
"""Rows that stand in the code and are carried with it."""
_STRING: Final = re.compile(r"""\"[^"]*\"|'[^']*'""")
_MAPS: Final = {205: "mapInPandas", 207: "mapInArrow"}
_PROCESSORS: Final = {
    **dict.fromkeys((211, 212), "transformWithStateInPandas"),
    **dict.fromkeys((213, 214), "transformWithState"),
}
_GROUP_MAPS: Final = {201: "applyInPandas", 209: "applyInArrow"}


@dataclass(frozen=True)
class Chain:
    """An expression in Python: a name, and methods that are called one after the other."""

    base: str
    calls: tuple[str, ...] = ()

    def then(self, call: str) -> Chain:
        """The same with another call at its end."""
        return Chain(self.base, (*self.calls, call))

    def text(self, indent: int) -> str:
        """In one line, or with a line for each call."""
        line = self.base + "".join(self.calls)
        if len(self.calls) < 2 or (len(line) + indent <= _LINE and "\n" not in line):
            return line
        margin = "\n" + " " * (indent + 4)
        calls = margin.join(self.calls)
        return f"({margin}{self.base}{calls}\n{' ' * indent})"


@dataclass
class FrameText:
    """Writes one query."""

    relations: Relations
    """Of the query: what its names mean."""
    definitions: Definitions
    """Gets the functions of the user that the query calls."""
    inputs: dict[str, str] = field(default_factory=dict)
    """Source -> the parameter that it comes in by."""
    lines: list[str] = field(default_factory=list)
    substituted: Mapping[str, Any] = field(default_factory=dict)
    """Name -> the relation that it stands for: the micro-batch of `foreachBatch`."""
    variables: dict[int, str] = field(default_factory=dict)
    uses: Counter[int] = field(default_factory=Counter)
    sides: dict[int, str] = field(default_factory=dict)
    """Plan id of a side of a join -> what it has to be called, as a name is taken from it."""
    tables: set[str] = field(default_factory=set)
    """Names of tables that DataFrames are called by."""
    registered: dict[str, str] = field(default_factory=dict)
    """Name of a function of the user in SQL -> the line that registers it."""
    session: bool = False
    """Whether the session is asked for."""

    def function(self, relation: Any) -> list[str]:
        """The body of the function, without indentation."""
        plan = self.relations.plan(relation)
        sources = list(_leaves(plan))
        self._only = not any(source.comes for source in sources)
        self._count(relation)
        while True:
            known = dict(self.sides)
            result = self.frame(relation)
            if self.sides == known:
                break
            self.lines.clear()
            self.variables.clear()
        head = []
        if self.session or self.registered:
            if not self.inputs:
                raise NotWritten("a query that reads nothing which could be an input")
            head.append(f"spark = {next(iter(self.inputs.values()))}.sparkSession")
        body = [*head, *self.registered.values(), *self.lines, f"return {result.text(4)}"]
        return self._without_aliases(body)

    def _without_aliases(self, body: list[str]) -> list[str]:
        """The body without the names of tables that nothing in it is called by."""
        written = [text for line in body for text in _STRING.findall(line)]
        for name in self.tables:
            if not any(
                re.search(rf"(?<!\w){re.escape(name)}\.", text, re.IGNORECASE) for text in written
            ):
                body = [line.replace(f".alias({_text(name)})", "") for line in body]
        return body

    def _count(self, relation: Any) -> None:
        """How often each relation is used; what lies inside of one is counted once."""
        todo = [relation]
        while todo:
            proto = todo.pop()
            if proto.common.HasField("plan_id"):
                self.uses[proto.common.plan_id] += 1
                if self.uses[proto.common.plan_id] > 1:
                    continue
            todo.extend(_inside(getattr(proto, proto.WhichOneof("rel_type"))))

    # ---- relations

    def frame(self, relation: Any) -> Chain:
        """The expression of a relation; one that is used again gets a name."""
        plan = relation.common.plan_id if relation.common.HasField("plan_id") else None
        if plan is not None and plan in self.variables:
            return Chain(self.variables[plan])
        kind = relation.WhichOneof("rel_type")
        write = getattr(self, f"_{kind}", None)
        if write is None:
            raise NotWritten(f"`{kind}`")
        chain: Chain = write(getattr(relation, kind))
        if plan is not None and self.uses[plan] > 1 and chain.calls:
            name = self._named(chain.base)
            self.lines.append(f"{name} = {chain.text(4)}")
            self.variables[plan] = name
            return Chain(name)
        return chain

    def _named(self, stem: str) -> str:
        """A name that is free; the stem itself, or with a number."""
        stem = "rows" if stem == "spark" else stem
        taken = {*self.variables.values(), *self.inputs.values(), "spark"}
        name, number = stem, 1
        while name in taken:
            number += 1
            name = f"{stem}_{number}"
        return name

    def _of(self, proto: Any) -> ExpressionText:
        """The writer of expressions over the input of a relation."""
        return ExpressionText(lambda name, plan: self._attribute(name, plan, proto), self._udf)

    def _attribute(self, name: str, plan: int | None, over: Any) -> str:
        text = ".".join(quoted(part) if part != "*" else part for part in split(name))
        if plan is None or self._names(over).count(split(name)[0].lower()) == 1:
            return text
        return f"{self._qualifier(name, plan, over)}.{text}"

    def _names(self, relation: Any) -> list[str]:
        return [column.name.lower() for column in self.relations.build(relation).columns]

    def _qualifier(self, name: str, plan: int, over: Any) -> str:
        """The side of the nearest join below that a column was taken from."""
        while True:
            kind = over.WhichOneof("rel_type")
            part = getattr(over, kind)
            if kind == "join":
                return self._side_of(name, plan, part)
            inside = list(_inside(part))
            if len(inside) != 1 or kind == "subquery_alias":
                raise NotWritten(f"the column `{name}`, of which there are several")
            (over,) = inside

    def _side_of(self, name: str, plan: int, join: Any) -> str:
        sides = [side for side in (join.left, join.right) if plan in set(_plans(side))]
        if len(sides) != 1:
            raise NotWritten(f"the column `{name}`, which both sides of a join have")
        (side,) = sides
        if side.WhichOneof("rel_type") == "subquery_alias":
            return quoted(side.subquery_alias.alias)
        number = side.common.plan_id
        if number not in self.sides:
            base = self.frame(side).base
            stem = base if base.isidentifier() and base != "spark" else "rows"
            taken = set(self.sides.values())
            free = (stem, *(f"{stem}_{number}" for number in range(2, len(taken) + 3)))
            self.sides[number] = next(candidate for candidate in free if candidate not in taken)
        return self.sides[number]

    def _list(self, over: Any, protos: Sequence[Any]) -> str:
        """Columns as arguments: names where they are that alone."""
        return ", ".join(self._column(over, expression) for expression in protos)

    def _column(self, over: Any, expression: Any) -> str:
        text = self._of(over).entry(expression)
        simple = expression.WhichOneof("expr_type") == "unresolved_attribute"
        return _text(text) if simple else f"F.expr({_text(text)})"

    def _project(self, proto: Any) -> Chain:
        if not proto.HasField("input"):
            raise NotWritten("a select list that reads nothing")
        chain = self.frame(proto.input)
        write = self._of(proto.input)
        entries = [_entry(write, expression) for expression in proto.expressions]
        plain = all(
            e.WhichOneof("expr_type") in ("unresolved_attribute", "unresolved_star")
            for e in proto.expressions
        )
        listed = ", ".join(_text(entry) for entry in entries)
        word = "select" if plain else "selectExpr"
        return chain.then(f".{word}({listed})")

    def _filter(self, proto: Any) -> Chain:
        condition = self._of(proto.input).text(proto.condition, inside=False)
        return self.frame(proto.input).then(f".where({_text(condition)})")

    def _with_columns(self, proto: Any) -> Chain:
        write = self._of(proto.input)
        pairs = []
        for alias in proto.aliases:
            if len(alias.name) != 1 or alias.metadata:
                raise NotWritten("a column with several names or metadata")
            pairs.append((alias.name[0], write.text(alias.expr, inside=False)))
        chain = self.frame(proto.input)
        if len(pairs) == 1:
            ((name, text),) = pairs
            return chain.then(f".withColumn({_text(name)}, F.expr({_text(text)}))")
        listed = ", ".join(f"{_text(name)}: F.expr({_text(text)})" for name, text in pairs)
        return chain.then(f".withColumns({{{listed}}})")

    def _with_columns_renamed(self, proto: Any) -> Chain:
        names = {rename.col_name: rename.new_col_name for rename in proto.renames}
        names |= dict(proto.rename_columns_map)
        return self.frame(proto.input).then(f".withColumnsRenamed({names!r})")

    def _to_df(self, proto: Any) -> Chain:
        return self.frame(proto.input).then(f".toDF({_words(proto.column_names)})")

    def _drop(self, proto: Any) -> Chain:
        write = self._of(proto.input)
        names = [_text(name) for name in proto.column_names]
        for column in proto.columns:
            text = write.text(column)
            names.append(f"F.col({_text(text)})" if "." in text else _text(text))
        return self.frame(proto.input).then(f".drop({', '.join(names)})")

    def _subquery_alias(self, proto: Any) -> Chain:
        return self.frame(proto.input).then(f".alias({_text(proto.alias)})")

    def _fill_na(self, proto: Any) -> Chain:
        values = [_value(value) for value in proto.values]
        if len(values) == 1:
            subset = f", subset=[{_words(proto.cols)}]" if proto.cols else ""
            return self.frame(proto.input).then(f".fillna({values[0]!r}{subset})")
        return self.frame(proto.input).then(
            f".fillna({dict(zip(proto.cols, values, strict=True))!r})"
        )

    def _drop_na(self, proto: Any) -> Chain:
        options = []
        if proto.HasField("min_non_nulls"):
            options.append(f"thresh={proto.min_non_nulls}")
        if proto.cols:
            options.append(f"subset=[{_words(proto.cols)}]")
        return self.frame(proto.input).then(f".dropna({', '.join(options)})")

    def _sort(self, proto: Any) -> Chain:
        write = self._of(proto.input)
        keys = []
        for key in proto.order:
            order = "desc" if key.direction == 2 else "asc"
            nulls = {1: "_nulls_first", 2: "_nulls_last"}.get(key.null_ordering, "")
            keys.append(f"F.expr({_text(write.text(key.child, inside=False))}).{order}{nulls}()")
        word = "sort" if proto.is_global else "sortWithinPartitions"
        return self.frame(proto.input).then(f".{word}({', '.join(keys)})")

    def _limit(self, proto: Any) -> Chain:
        return self.frame(proto.input).then(f".limit({proto.limit})")

    def _repartition(self, proto: Any) -> Chain:
        return self.frame(proto.input)  # how rows are spread changes none of them

    _repartition_by_expression = _repartition

    def _hint(self, proto: Any) -> Chain:
        if proto.name == UNREAD:
            raise NotWritten(proto.parameters[0].literal.string)
        return self.frame(proto.input)

    def _aggregate(self, proto: Any) -> Chain:
        words = {1: "groupBy", 2: "rollup", 3: "cube", 4: "groupBy"}
        if proto.group_type not in words:
            raise NotWritten("grouping sets")
        if not proto.aggregate_expressions:
            raise NotWritten("groups without an aggregate")
        keys = self._list(proto.input, proto.grouping_expressions)
        chain = self.frame(proto.input).then(f".{words[proto.group_type]}({keys})")
        if proto.group_type == 4:
            column = self._of(proto.input).text(proto.pivot.col, inside=False)
            if not proto.pivot.values:
                raise NotWritten("a pivot whose columns are the values that the data have")
            values = [_value(value) for value in proto.pivot.values]
            chain = chain.then(f".pivot({_text(column)}, {values!r})")
        write = self._of(proto.input)
        entries = [_entry(write, expression) for expression in proto.aggregate_expressions]
        listed = ", ".join(f"F.expr({_text(entry)})" for entry in entries)
        return chain.then(f".agg({listed})")

    def _deduplicate(self, proto: Any) -> Chain:
        chain = self.frame(proto.input)
        word = "dropDuplicatesWithinWatermark" if proto.within_watermark else "dropDuplicates"
        keys = "" if proto.all_columns_as_keys else f"[{_words(proto.column_names)}]"
        return chain.then(f".{word}({keys})")

    def _with_watermark(self, proto: Any) -> Chain:
        written = f".withWatermark({_words([proto.event_time, proto.delay_threshold])})"
        return self.frame(proto.input).then(written)

    def _join(self, proto: Any) -> Chain:
        if proto.join_type not in _JOINS:
            raise NotWritten("a join of an unknown type")
        left, right = self._called(proto.left), self._called(proto.right)
        how = _text(_JOINS[proto.join_type])
        if proto.using_columns:
            on = f"[{_words(proto.using_columns)}]"
        elif proto.HasField("join_condition"):
            write = ExpressionText(lambda name, plan: self._of_join(name, plan, proto), self._udf)
            on = f"F.expr({_text(write.text(proto.join_condition, inside=False))})"
        else:
            return left.then(f".crossJoin({self._side(right)})")
        return left.then(f".join({self._side(right)}, {on}, {how})")

    def _called(self, relation: Any) -> Chain:
        """A side of a join, under its name where a column is taken from it."""
        chain = self.frame(relation)
        name = self.sides.get(relation.common.plan_id)
        return chain if name is None else chain.then(f".alias({_text(name)})")

    def _of_join(self, name: str, plan: int | None, join: Any) -> str:
        """A name in the condition of a join."""
        text = ".".join(map(quoted, split(name)))
        first = split(name)[0].lower()
        has = [first in self._names(side) for side in (join.left, join.right)]
        if plan is None or sum(has) == 1:
            return text
        return f"{self._side_of(name, plan, join)}.{text}"

    def _side(self, chain: Chain, stem: str = "") -> str:
        """An argument of another chain: by a name of its own where it is long."""
        text = "".join((chain.base, *chain.calls))
        if len(text) <= _SIDE:
            return text
        name = self._named(stem or chain.base)
        self.variables[-len(self.variables) - 1] = name
        self.lines.append(f"{name} = {chain.text(4)}")
        return name

    def _set_op(self, proto: Any) -> Chain:
        left = self.frame(proto.left_input)
        right = self._side(self.frame(proto.right_input))
        if proto.set_op_type == 2:
            if proto.by_name:
                missing = ", allowMissingColumns=True" if proto.allow_missing_columns else ""
                return left.then(f".unionByName({right}{missing})")
            return left.then(f".union({right})")
        words = {
            (1, False): "intersect",
            (1, True): "intersectAll",
            (3, False): "subtract",
            (3, True): "exceptAll",
        }
        return left.then(f".{words[proto.set_op_type, proto.is_all]}({right})")

    # ---- what is read

    def _read(self, proto: Any) -> Chain:
        if proto.WhichOneof("read_type") == "named_table":
            name = ".".join(split(proto.named_table.unparsed_identifier))
            view = self.relations.views.get(proto.named_table.unparsed_identifier)
            if name in self.substituted:
                return self.frame(self.substituted[name])
            if view is not None:
                return self.frame(view).then(f".alias({_text(name.rpartition('.')[2])})")
        source = self.relations.source_of(proto, None)
        if not isinstance(source, ir.Source):
            raise NotWritten("a source of which nothing is known")
        if source.comes or self._only:
            self.inputs.setdefault(source.name, _parameter(source.name))
            chain = Chain(self.inputs[source.name])
            if proto.WhichOneof("read_type") == "named_table":
                name = source.name.rpartition(".")[2]
                self.tables.add(name)
                return chain.then(f".alias({_text(name)})")
            return chain
        self.session = True
        if proto.WhichOneof("read_type") == "named_table":
            return Chain("spark", (f".table({_text(proto.named_table.unparsed_identifier)})",))
        data = proto.data_source
        chain = Chain("spark", (f".read.format({_text(data.format or 'parquet')})",))
        if data.schema:
            chain = chain.then(f".schema({_text(_schema_text(data.schema))})")
        for name, value in data.options.items():
            chain = chain.then(f".option({_words([name, value])})")
        return chain.then(f".load({_words(data.paths)})")

    def _local_relation(self, proto: Any) -> Chain:
        import pyarrow

        table = pyarrow.ipc.open_stream(proto.data).read_all() if proto.data else None
        if table is None or table.num_rows > _ROWS_MAX or not proto.schema:
            raise NotWritten("rows that stand in the code")
        rows = [tuple(row.values()) for row in table.to_pylist()]
        for value in (value for row in rows for value in row):
            if not isinstance(value, str | int | float | bool | None):
                raise NotWritten("rows that stand in the code and are more than texts and numbers")
        self.session = True
        schema = _schema_text(proto.schema)
        listed = ", ".join(map(repr, rows))
        return Chain("spark", (f".createDataFrame([{listed}], {schema!r})",))

    def _range(self, proto: Any) -> Chain:
        self.session = True
        return Chain("spark", (f".range({proto.start}, {proto.end}, {proto.step})",))

    def _with_relations(self, proto: Any) -> Chain:
        if proto.root.WhichOneof("rel_type") != "sql":
            raise NotWritten("a subquery made of DataFrames")
        inside = {r.subquery_alias.alias: r.subquery_alias.input for r in proto.references}
        return self._query(proto.root.sql, inside)

    def _sql(self, proto: Any) -> Chain:
        return self._query(proto, {})

    def _query(self, proto: Any, views: Mapping[str, Any]) -> Chain:
        """A text of SQL over DataFrames: its tables become places for them."""
        import pyspark.sql.connect.proto as pb

        from annotations.whitebox.connect import texts

        if proto.pos_arguments or proto.named_arguments or proto.args or proto.pos_args:
            raise NotWritten("a query in SQL with parameters")
        text = re.sub(r"\bLIVE\.(?=[\w`])", "", proto.query, flags=re.IGNORECASE)
        text = inspect.cleandoc(without_streams(text))
        by_name = {name.lower(): view for name, view in views.items()}
        streamed = texts.streams(proto.query)
        frames: dict[str, str] = {}
        if "{" in text or "}" in text:
            raise NotWritten("a query in SQL with braces")
        for place in sorted(texts.table_places(text), reverse=True):
            relation = by_name.get(place.name.lower())
            if relation is None:
                relation = pb.Relation()
                relation.read.named_table.unparsed_identifier = place.name
                relation.read.is_streaming = place.name in streamed
            name = _parameter(place.name.rpartition(".")[2])
            frames[name] = self._side(self.frame(relation), name)
            called = "" if place.called else f" AS {quoted(place.name.rpartition('.')[2])}"
            text = f"{text[: place.begin]}{{{name}}}{called}{text[place.end :]}"
        self.session = True
        arguments = "".join(f", {name}={frame}" for name, frame in frames.items())
        quotes = '"""' if '"""' not in text and "\\" not in text else ""
        written = f"{quotes}\n{text}\n{quotes}" if quotes and "\n" in text else _text(text)
        return Chain("spark", (f".sql({written}{arguments})",))

    # ---- code of the user

    def _udf(self, proto: Any) -> str:
        """The name in SQL of a function of the user."""
        if proto.WhichOneof("function") == "python_udf":
            python = proto.python_udf
        else:
            python = proto if hasattr(proto, "eval_type") else None
        if python is None:
            raise NotWritten(f"`{proto.function_name}`, which is compiled code")
        name = self.definitions.name(python.command, proto.function_name)
        type_ = _text(type_text(python.output_type))
        match python.eval_type:
            case 100:
                text = f"F.udf({name}, {type_})"
            case 101:
                text = f"F.udf({name}, {type_}, useArrow=True)"
            case 200 | 204:
                text = f"F.pandas_udf({name}, {type_})"
            case _:
                raise NotWritten(f"`{proto.function_name}`, a function of its own kind")
        if not proto.deterministic:
            text += ".asNondeterministic()"
        called = f"{name}_udf"
        self.registered[called] = f"spark.udf.register({_text(called)}, {text})"
        return called

    def _map_partitions(self, proto: Any) -> Chain:
        python = proto.func.python_udf
        word = _MAPS.get(python.eval_type)
        if word is None:
            raise NotWritten(f"`{proto.func.function_name}`, a function of its own kind")
        name = self.definitions.name(python.command, proto.func.function_name)
        schema = _type(python.output_type)
        return self.frame(proto.input).then(f".{word}({name}, {_text(schema)})")

    def _group_map(self, proto: Any) -> Chain:
        python = proto.func.python_udf
        keys = self._list(proto.input, proto.grouping_expressions)
        chain = self.frame(proto.input).then(f".groupBy({keys})")
        if python.eval_type in _PROCESSORS:
            return chain.then(f".{_PROCESSORS[python.eval_type]}({self._processor(proto)})")
        word = _GROUP_MAPS.get(python.eval_type)
        if word is None:
            raise NotWritten(f"`{proto.func.function_name}`, a function of its own kind")
        name = self.definitions.name(python.command, proto.func.function_name)
        return chain.then(f".{word}({name}, {_text(_type(python.output_type))})")

    def _processor(self, proto: Any) -> str:
        """The arguments of `transformWithState`, with a new object of the user's class."""
        if proto.HasField("initial_input"):
            raise NotWritten("`transformWithState` with an initial state")
        state = proto.transform_with_state_info
        processor = self.definitions.of_processor(proto.func.python_udf.command)
        options = {
            "outputStructType": _type(state.output_schema),
            "outputMode": proto.output_mode,
            "timeMode": state.time_mode,
            "eventTimeColumnName": state.event_time_column_name,
        }
        named = ", ".join(f"{name}={_text(text)}" for name, text in options.items() if text)
        return f"{processor}, {named}"

    def _apply_in_pandas_with_state(self, proto: Any) -> Chain:
        name = self.definitions.name(proto.func.python_udf.command, proto.func.function_name)
        keys = self._list(proto.input, proto.grouping_expressions)
        chain = self.frame(proto.input).then(f".groupBy({keys})")
        schemas = [_schema_text(s) for s in (proto.output_schema, proto.state_schema)]
        rest = _words((*schemas, proto.output_mode, proto.timeout_conf))
        return chain.then(f".applyInPandasWithState({name}, {rest})")


def _plans(relation: Any) -> Iterator[int]:
    todo = [relation]
    while todo:
        proto = todo.pop()
        yield proto.common.plan_id
        todo.extend(_inside(getattr(proto, proto.WhichOneof("rel_type"))))


def _inside(message: Any) -> Iterator[Any]:
    """The relations directly inside of a message."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            continue
        if descriptor.message_type.full_name == "spark.connect.Relation":
            yield from value if descriptor.is_repeated else (value,)


def _leaves(plan: ir.Relation) -> Iterator[ir.Source]:
    from annotations.whitebox.connect.reading import sources

    return sources(plan)


def _entry(write: ExpressionText, expression: Any) -> str:
    """An entry of a select list; a function of the user keeps the name that its column has."""
    text = write.entry(expression)
    if expression.WhichOneof("expr_type") == "common_inline_user_defined_function":
        return f"{text} AS {quoted(title(expression))}"
    return text


def _parameter(name: str) -> str:
    """The name of a parameter in Python.

    >>> _parameter("raw.a"), _parameter("class")
    ('raw_a', 'class_')
    """
    import keyword

    word = re.sub(r"\W+", "_", name).strip("_") or "rows"
    word = word if word[0].isalpha() or word[0] == "_" else f"n_{word}"
    return f"{word}_" if keyword.iskeyword(word) else word


def _text(text: str) -> str:
    """A text in Python."""
    if '"' in text or not text.isprintable() or "\\" in text:
        return repr(text)
    return f'"{text}"'


def _words(names: Sequence[str]) -> str:
    return ", ".join(map(_text, names))


def _value(proto: Any) -> Any:
    """A constant as a value of Python."""
    kind = proto.WhichOneof("literal_type")
    if kind not in ("boolean", "byte", "short", "integer", "long", "float", "double", "string"):
        raise NotWritten(f"a constant of the type `{kind}`")
    return getattr(proto, kind)


def _type(type_: Any) -> str:
    """The columns of a type, or the type; as it is written where that is a text."""
    if type_.WhichOneof("kind") == "unparsed":
        return str(type_.unparsed.data_type_string)
    from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type
    from pyspark.sql.types import StructType

    spark_type = proto_schema_to_pyspark_data_type(type_)
    return ddl(spark_type) if isinstance(spark_type, StructType) else spark_type.simpleString()


def _schema_text(schema: str) -> str:
    """A schema in words of SQL."""
    if not schema.startswith("{"):
        return schema
    import json

    from pyspark.sql.types import StructType

    return ddl(StructType.fromJson(json.loads(schema)))
