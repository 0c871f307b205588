"""The code of a query as a value for JSON: `{inputs, body, imports, statements}`, or `{reason}`.

What a value decided that is not known here (`outside`) is not carried: the code would be another
one where the job runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from annotations.whitebox.connect.definitions import Definitions
from annotations.whitebox.connect.expression_text import NotWritten
from annotations.whitebox.connect.frame_text import FrameText
from annotations.whitebox.connect.reading import Reading
from annotations.whitebox.file_metadata import NAME
from annotations.whitebox.following import outside
from annotations.whitebox.following.values import HIDDEN
from annotations.whitebox.sql_dialect import NotParsed


def carried(
    home: Reading,
    relation: Any,
    views: Mapping[str, Any],
    substituted: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The code of a relation that was made when these views were there.

    `substituted`: name of a table -> the relation that stands for it.
    """
    definitions = Definitions(home.answers.objects)
    text = FrameText(home.relations(views), definitions, substituted=substituted or {})
    try:
        if outside.DECIDED:
            raise NotWritten(f"`{next(iter(outside.DECIDED))}`, which is not known here")
        body = text.function(relation)
        if any(NAME in line for line in body):
            raise NotWritten("`_metadata`, which no component is given with its records")
        for value in (*outside.MADE, HIDDEN):
            if any(value in line for line in (*body, *definitions.statements.values())):
                raise NotWritten(f"`{value}`, which is not known here")
    except NotWritten as unwritten:
        return {"reason": f"it uses {unwritten}"}
    except NotParsed as unparsed:
        return {"reason": f"a query in SQL is {unparsed.reason}"}
    return _described(text.inputs, body, definitions)


def taken(home: Reading, taker: Any, kind: str) -> dict[str, Any]:
    """The code of what `foreachBatch` or `foreach` calls, whose only line gives it."""
    definitions = Definitions(home.answers.objects)
    called = getattr(taker, "__name__", type(taker).__name__)
    try:
        if kind == "foreach" and not hasattr(taker, "__code__"):
            text = definitions.of_object(taker, called)
        elif kind == "foreach":
            text = definitions.of_function(taker, called)
        else:
            text = definitions.of_driver(taker, called)
            if "SparkSession" in text:  # which is there when the function is called
                text = f"lambda *batch: {text}(*batch)"
        if outside.DECIDED:
            raise NotWritten(f"`{next(iter(outside.DECIDED))}`, which is not known here")
    except NotWritten as unwritten:
        return {"reason": f"its function of {kind} is {unwritten}"}
    return _described({}, [text], definitions)


def _described(
    inputs: Mapping[str, str], body: list[str], definitions: Definitions
) -> dict[str, Any]:
    return {
        "inputs": dict(inputs),
        "body": body,
        "imports": list(definitions.imports),
        "statements": [
            [file, line, source] for (file, line), source in definitions.statements.items()
        ],
    }
