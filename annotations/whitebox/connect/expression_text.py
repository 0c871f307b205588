"""The text in Spark SQL of an expression of the Connect client: `device`, `sum(cents) AS total`.

What cannot be written raises `NotWritten`, with the reason: nothing is guessed, as the text is run.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from typing import Any, Final

from annotations.whitebox.connect.scope import split
from annotations.whitebox.following import outside

_WORD: Final = re.compile(r"[A-Za-z_]\w*")
_GRAMMAR: Final = (
    "all and anti any as asc between both by case cast check collate column create cross current "
    "desc distinct drop else end escape except exists false fetch filter for foreign from full "
    "grant group having if in inner insert intersect interval into is join lateral leading left "
    "like limit minus natural not null offset on or order outer over overlaps primary references "
    "right rlike select semi set some table then to trailing true union unique unknown user using "
    "values when where window with"
)
_QUOTED_WORDS: Final = frozenset(_GRAMMAR.split())
"""Words that are a part of the grammar somewhere: as names they are quoted."""
_OPERATORS: Final[Mapping[str, str]] = {
    **{sign: sign for sign in ("<", "<=", ">", ">=", "+", "-", "*", "/", "%", "&", "|", "^")},
    **{word: word.upper() for word in ("and", "or", "div", "like", "rlike", "ilike", "=", "<=>")},
    "==": "=",
    "!=": "<>",
}
_PREFIXES: Final[Mapping[str, str]] = {"not": "NOT ", "!": "NOT ", "~": "~", "negative": "-"}
_SUFFIXES: Final[Mapping[str, str]] = {"isnull": "IS NULL", "isnotnull": "IS NOT NULL"}
_SCHEMAS: Final = frozenset({"from_json", "from_csv", "from_xml"})
_EPOCH: Final = date(1970, 1, 1)


class NotWritten(Exception):  # noqa: N818
    """Something that has no text here; the message says what."""


Attribute = Callable[[str, int | None], str]
"""A name as it is written, and the id of the plan that it was taken from -> its text."""
Function = Callable[[Any], str]
"""A function of the user (`CommonInlineUserDefinedFunction`) -> what it is called in SQL."""


class ExpressionText:
    """Writes expressions over one input."""

    def __init__(self, attribute: Attribute, function: Function) -> None:
        self._attribute = attribute
        self._function = function

    def entry(self, proto: Any) -> str:
        """An entry of a select list, with the name that it is given."""
        if proto.WhichOneof("expr_type") != "alias":
            return self.text(proto, inside=False)
        if proto.alias.metadata:
            raise NotWritten("a column with metadata")
        names = ", ".join(map(quoted, proto.alias.name))
        names = f"({names})" if len(proto.alias.name) > 1 else names
        return f"{self.text(proto.alias.expr, inside=False)} AS {names}"

    def text(self, proto: Any, *, inside: bool = True) -> str:
        """An expression; `inside` of another one, where it may need parentheses."""
        kind = proto.WhichOneof("expr_type")
        part = getattr(proto, kind)
        match kind:
            case "literal":
                return literal(part)
            case "unresolved_attribute":
                return self._attribute(
                    part.unparsed_identifier, part.plan_id if part.HasField("plan_id") else None
                )
            case "unresolved_star":
                return part.unparsed_target or "*"
            case "alias":
                return self.text(part.expr, inside=inside)
            case "expression_string":
                return f"({part.expression})" if inside else str(part.expression)
            case "cast":
                return self._cast(part)
            case "unresolved_function":
                written = self._called(part)
                return f"({written})" if inside and _is_operator(part) else written
            case "call_function":
                if f"${part.function_name}" in outside.MADE:
                    raise NotWritten(f"`{part.function_name}`, which is not known here")
                return self._plain(part.function_name, part.arguments)
            case "common_inline_user_defined_function":
                return self._plain(self._function(part), part.arguments)
            case "unresolved_extract_value":
                return f"{self.text(part.child)}[{self.text(part.extraction, inside=False)}]"
            case "lambda_function":
                names = [_variable(argument) for argument in part.arguments]
                return f"({', '.join(names)}) -> {self.text(part.function, inside=False)}"
            case "unresolved_named_lambda_variable":
                return _variable(part)
            case "named_argument_expression":
                return f"{quoted(part.key)} => {self.text(part.value, inside=False)}"
            case "window":
                return self._window(part)
        raise NotWritten(f"an expression of the kind `{kind}`")

    def _list(self, protos: Sequence[Any]) -> str:
        return ", ".join(self.text(argument, inside=False) for argument in protos)

    def _called(self, call: Any) -> str:
        name = call.function_name.lower()
        arguments = call.arguments
        if call.is_user_defined_function:
            raise NotWritten(f"the function `{name}`, which is defined elsewhere")
        if name in _OPERATORS and len(arguments) == 2:
            left, right = map(self.text, arguments)
            return f"{left} {_OPERATORS[name]} {right}"
        if name in _PREFIXES and len(arguments) == 1:
            return f"{_PREFIXES[name]}{self.text(arguments[0])}"
        if name in _SUFFIXES and len(arguments) == 1:
            return f"{self.text(arguments[0])} {_SUFFIXES[name]}"
        if name == "in":
            return f"{self.text(arguments[0])} IN ({self._list(arguments[1:])})"
        if name == "when":
            return self._case(arguments)
        if name in _SCHEMAS:
            rest = [self.text(argument, inside=False) for argument in arguments]
            return f"{name}({', '.join([rest[0], _schema(arguments[1], rest[1]), *rest[2:]])})"
        if not _WORD.fullmatch(name):
            raise NotWritten(f"the function `{name}`")
        distinct = "DISTINCT " if call.is_distinct else ""
        return f"{name}({distinct}{self._list(arguments)})"

    def _plain(self, name: str, arguments: Sequence[Any]) -> str:
        return f"{'.'.join(map(quoted, split(name)))}({self._list(arguments)})"

    def _case(self, arguments: Sequence[Any]) -> str:
        texts = [self.text(argument, inside=False) for argument in arguments]
        pairs = zip(texts[0::2], texts[1::2], strict=False)
        otherwise = f" ELSE {texts[-1]}" if len(texts) % 2 else ""
        return f"CASE {' '.join(f'WHEN {when} THEN {then}' for when, then in pairs)}{otherwise} END"

    def _cast(self, cast: Any) -> str:
        typed = cast.WhichOneof("cast_to_type") == "type"
        type_ = type_text(cast.type) if typed else cast.type_str
        word = "TRY_CAST" if cast.eval_mode == 3 else "CAST"
        return f"{word}({self.text(cast.expr, inside=False)} AS {type_})"

    def _window(self, window: Any) -> str:
        if window.HasField("frame_spec"):
            raise NotWritten("a window function with a frame of its own")
        parts = []
        if window.partition_spec:
            parts.append(f"PARTITION BY {self._list(window.partition_spec)}")
        if window.order_spec:
            parts.append(f"ORDER BY {', '.join(map(self.order, window.order_spec))}")
        return f"{self.text(window.window_function)} OVER ({' '.join(parts)})"

    def order(self, key: Any) -> str:
        """A part of an order."""
        direction = "DESC" if key.direction == 2 else "ASC"
        nulls = {1: " NULLS FIRST", 2: " NULLS LAST"}.get(key.null_ordering, "")
        return f"{self.text(key.child)} {direction}{nulls}"


def _is_operator(call: Any) -> bool:
    name = call.function_name.lower()
    return name in _OPERATORS or name in _PREFIXES or name in _SUFFIXES or name == "in"


def _variable(proto: Any) -> str:
    return quoted(".".join(proto.name_parts))


def quoted(name: str) -> str:
    """A name, in backticks where it needs them.

    >>> quoted("device"), quoted("sum(wh)"), quoted("order")
    ('device', '`sum(wh)`', '`order`')
    """
    if _WORD.fullmatch(name) and name.lower() not in _QUOTED_WORDS:
        return name
    return f"`{name.replace('`', '``')}`"


def string(value: str) -> str:
    r"""A text as Spark SQL reads it.

    >>> print(string("it's 5\\6"))
    'it\'s 5\\6'
    """
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped.replace(chr(10), chr(92) + 'n').replace(chr(13), chr(92) + 'r')}'"


def literal(proto: Any) -> str:
    """A constant with its type."""
    kind = proto.WhichOneof("literal_type")
    value = getattr(proto, kind)
    match kind:
        case "null":
            return "NULL"
        case "boolean":
            return str(value).lower()
        case "byte" | "short" | "integer" | "long":
            suffix = {"byte": "Y", "short": "S", "integer": "", "long": "L"}[kind]
            return f"{value}{suffix}"
        case "float" | "double":
            if not math.isfinite(value):
                return f"{kind}('{value}')"
            return f"{value!r}{kind[0].upper()}"
        case "decimal":
            return f"{value.value}BD"
        case "string":
            return string(value)
        case "binary":
            return f"X'{value.hex()}'"
        case "date":
            return f"DATE'{_EPOCH + timedelta(days=value)}'"
        case "timestamp":
            return f"timestamp_micros({value})"
        case "array":
            return f"array({', '.join(map(literal, value.elements))})"
    raise NotWritten(f"a constant of the type `{kind}`")


def type_text(type_: Any) -> str:
    """A type as Spark SQL writes it."""
    from pyspark.sql.connect.types import proto_schema_to_pyspark_data_type

    return proto_schema_to_pyspark_data_type(type_).simpleString()


def _schema(argument: Any, text: str) -> str:
    """The schema that a text is taken apart by: in words of SQL where the client sends JSON."""
    if argument.WhichOneof("expr_type") != "literal":
        return text
    written = argument.literal.string
    if not written.startswith(("{", '"')):
        return text
    from pyspark.sql.types import StructType, _parse_datatype_json_value

    type_ = _parse_datatype_json_value(json.loads(written))
    return string(ddl(type_) if isinstance(type_, StructType) else type_.simpleString())


def ddl(schema: Any) -> str:
    """The columns of a schema: `id bigint, name string`."""
    return ", ".join(f"{quoted(f.name)} {f.dataType.simpleString()}" for f in schema.fields)
