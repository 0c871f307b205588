"""A session without Spark behind it, in which user code runs and is read.

Importing this module prepares the process: PySpark then finds a channel to nowhere.
"""

from __future__ import annotations

import contextlib
import resource
import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from annotations.dataflow import Position
from annotations.whitebox import ir
from annotations.whitebox.connect import channel

channel.prepare()

from annotations.whitebox.connect import code, leaves, rows, state, texts  # noqa: E402
from annotations.whitebox.connect.answers import Answers  # noqa: E402
from annotations.whitebox.connect.relations import (  # noqa: E402
    Converter,
    Relations,
    passes_all,
)
from annotations.whitebox.connect.sources import OF_FILES, Sources  # noqa: E402
from annotations.whitebox.connect.standin import stand_in  # noqa: E402
from annotations.whitebox.following.outside import Refused  # noqa: E402
from annotations.whitebox.following.places import Places  # noqa: E402
from annotations.whitebox.following.program import Unparsed  # noqa: E402
from annotations.whitebox.following.user_functions import left_to_chance  # noqa: E402

_CONVERTERS: Final[Mapping[str, Converter]] = {
    **leaves.CONVERTERS,
    **rows.CONVERTERS,
    **state.CONVERTERS,
    **code.CONVERTERS,
}
"""Field of Spark Connect's `Relation` -> what makes the plan of its message."""


class Reading:
    """A session without Spark, and what the user's code did to it."""

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.sources = Sources.of(request.get("schemas", {}))
        self.places = Places(self.sources.anew)
        self.places.watch()
        self.answers = Answers(self._schema, self._streaming)
        self.spark = channel.session(self.answers)
        stand_in(self.spark, self.answers, self.grows)

    def relations(self, views: Mapping[str, Any]) -> Relations:
        """A conversion of one DataFrame that was made when these views were there."""
        return Relations(
            converters=_CONVERTERS,
            source_of=self.sources.source,
            query_of=texts.query,
            sql=partial(texts.select_list, functions=self.answers.functions),
            places=self.places.of,
            views=views,
            functions=self.answers.functions,
            mentioned=self.sources.mentioned,
        )

    def plan(
        self, relation: Any, views: Mapping[str, Any] | None = None, *, in_batch: bool = False
    ) -> ir.Relation:
        """The plan of a relation; `in_batch`: of one that a function of `foreachBatch` makes."""
        self.sources.look_at(relation)
        plan = self.relations(self.answers.views if views is None else views).plan(relation)
        plan = left_to_chance(plan, in_batch=in_batch)
        setting = self.answers.conf.unread
        return plan if setting is None else ir.Opaque((plan,), plan.columns, setting)

    def external(self) -> dict[str, dict[str, Any]]:
        """The external sources; what the session sets for all files is an option of each."""
        for described in self.sources.read.values():
            options = described.get("options", {})
            given = {
                name: self.answers.conf[f"spark.sql.files.{name}"]
                for name in ("ignoreCorruptFiles", "ignoreMissingFiles")
                if f"spark.sql.files.{name}" in self.answers.conf
                and name.lower() not in map(str.lower, options)
            }
            if given and str(described["format"] or "parquet").lower() in OF_FILES:
                described["options"] = {**options, **given}
        return self.sources.read

    def _schema(self, relation: Any, views: Mapping[str, Any]) -> list[Any]:
        return [(c.name, c.type, c.nullable) for c in self.plan(relation, views).columns]

    def _streaming(self, relation: Any, views: Mapping[str, Any]) -> bool:
        live = (ir.Role.STREAM, ir.Role.REQUEST)
        return any(source.role in live for source in sources(self.plan(relation, views)))

    def grows(self, relation: Any, plan: ir.Relation | None = None) -> bool:
        """Whether a DataFrame may have more columns than are known: all those of what is not
        declared, or not understood. `plan`: of the relation, or what stands for it."""
        return (relation is None or passes_all(relation)) and any(
            isinstance(node, ir.Opaque) or (isinstance(node, ir.Source) and not node.complete)
            for node in ir.nodes_of(self.plan(relation) if plan is None else plan)
        )

    # ---- what can be asked for

    def relation_of(self, function: Callable[..., Any], asked: Mapping[str, Any]) -> Any:
        """The DataFrame that a function makes of one for each input, as the client describes it."""
        frames = {
            name: self.spark.table(f"`{name}`")
            if given.get("role") == "table"
            else self.spark.readStream.table(f"`{name}`")
            for name, given in asked["inputs"].items()
        }
        result = function(**frames)
        if not hasattr(result, "_plan"):
            raise Refused(f"the function returned {type(result).__name__}, not a DataFrame")
        return result._plan.to_proto(self.spark.client).root

    @contextlib.contextmanager
    def failures(self) -> Iterator[dict[str, Any]]:
        """The failure of the user's code: `error`, with the innermost place in the user's files."""
        answer: dict[str, Any] = {}
        try:
            yield answer
        except Exception as failed:
            answer["error"] = describe(failed)
            answer["position"] = place_text(place_of(failed))
            answer["unparsed"] = isinstance(failed, Unparsed)


def sources(plan: ir.Relation) -> Iterator[ir.Source]:
    """The leaves of a plan."""
    return (node for node in ir.nodes_of(plan) if isinstance(node, ir.Source))


def describe(failed: BaseException) -> str:
    """One line about an exception."""
    if isinstance(failed, MemoryError):
        return f"out of memory: it may take {resource.getrlimit(resource.RLIMIT_AS)[0] >> 20} MiB"
    text = str(failed).strip().partition("\n")[0]
    if isinstance(failed, Refused | Unparsed):
        return text
    return f"{type(failed).__name__}: {text}" if text else type(failed).__name__


def place_of(failed: BaseException) -> Position | None:
    """The innermost line of the user's own files that an exception went through."""
    import pyspark

    hidden = (str(Path(pyspark.__file__).parent), str(Path(__file__).parents[1]), "<")
    if isinstance(failed, Unparsed):
        return failed.position
    if isinstance(failed, SyntaxError) and failed.filename:
        return Position(failed.filename, failed.lineno or 1, failed.offset or 1)
    frames = traceback.extract_tb(failed.__traceback__)
    own = [
        f for f in frames if not f.filename.startswith(hidden) and "/lib/python3" not in f.filename
    ]
    return Position(own[-1].filename, own[-1].lineno or 1, 1) if own else None


def place_text(position: Position | None) -> list[Any] | None:
    """A place as a value for JSON."""
    return None if position is None else [position.file, position.line, position.column]
