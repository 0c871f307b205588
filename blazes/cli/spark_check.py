"""Spark's own analyser over the code of a dataflow, for `blazes compile --check-with-spark`.

Each component's SQL is analysed over empty tables with the columns of its inputs, in the order in
which records go through them, and so are the expressions of punctuations. Nothing is run, and
nothing of the user's Python is imported: behind it only declared schemas are known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from annotations.dataflow import Dataflow, Endpoint, Implementation, Position, Stream
from annotations.diagnostics import Diagnostic

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from annotations.whitebox.code import Code
    from codegen.judge import Judgement


def spark_problems(judgement: Judgement, session: SparkSession) -> tuple[Diagnostic, ...]:
    """The diagnostics of Spark about the code, each at its place in the file."""
    return tuple(_Check(judgement, session).problems())


class _Check:
    """One dataflow in one session."""

    def __init__(self, judgement: Judgement, session: SparkSession) -> None:
        from annotations.whitebox.code import Code

        self._judgement = judgement
        self._session = session
        self._dataflow: Dataflow = judgement.plan.analysis.dataflow
        self._code: Code = Code(self._dataflow)
        self._outputs: dict[Endpoint, DataFrame | None] = {}

    def problems(self) -> Iterator[Diagnostic]:
        """Of sources first, then of outputs, each after what feeds it."""
        for stream in self._dataflow.streams.values():
            if stream.producer is None:
                yield from self._of_source(stream)
        for at, draft in self._judgement.net.drafts.items():
            frames = {name: self._input(Endpoint(at.component, name)) for name in draft.inputs}
            known = {name: frame for name, frame in frames.items() if frame is not None}
            self._outputs[at] = None
            by = draft.implementation
            if by is None and len(known) == len(frames) == 1:
                (self._outputs[at],) = known.values()
            elif by is not None and by.sql is not None and known and len(known) == len(frames):
                yield from self._of_output(at, by, known)

    def _of_source(self, stream: Stream) -> Iterator[Diagnostic]:
        from pyspark.errors import PySparkException
        from pyspark.sql import functions as sf

        try:
            frame = self._declared(stream)
        except PySparkException as error:
            yield _diagnostic(f"the schema of {stream.name}", error, stream.position)
            return
        punctuation = stream.punctuation
        if frame is None or punctuation is None:
            return
        wanted = {
            "when": f"coalesce(({punctuation.when}), false)",
            "count": f"try_cast(({punctuation.count}) AS BIGINT)",
            **({"digest": f"CAST(({punctuation.digest}) AS STRING)"} if punctuation.digest else {}),
        }
        for key, text in wanted.items():
            try:
                frame.select(sf.expr(text))
            except PySparkException as error:
                yield _diagnostic(f"`{key}` of {stream.name}", error, stream.position)

    def _of_output(
        self, at: Endpoint, by: Implementation, frames: Mapping[str, DataFrame]
    ) -> Iterator[Diagnostic]:
        from pyspark.errors import PySparkException

        from flux_runtime.spark.frames import sql

        assert by.sql is not None
        try:
            frame = sql(by.sql, **frames)
        except PySparkException as error:
            start = _start(error)
            place = by.position if start is None else self._code.place(by.sql, by.position)(start)
            yield _diagnostic(str(at), error, place)
            return
        replicas = self._dataflow.components[at.component].replicas
        self._outputs[at] = frame.selectExpr("*", "1 AS replica") if replicas > 1 else frame

    def _input(self, end: Endpoint) -> DataFrame | None:
        """A table without rows and with the columns that come in; None where they are not known."""
        from pyspark.errors import PySparkException

        union: DataFrame | None = None
        for stream in self._judgement.net.entering.get(end, ()):
            try:
                frame = self._of_stream(stream)
                if frame is None:
                    return None
                union = frame if union is None else union.unionByName(frame)
            except PySparkException:
                return None  # told where the stream comes from
        return union

    def _of_stream(self, stream: Stream) -> DataFrame | None:
        before = None if stream.producer is None else self._outputs.get(stream.producer)
        return before if before is not None else self._declared(stream)

    def _declared(self, stream: Stream) -> DataFrame | None:
        from pyspark.sql.types import StructType

        if stream.schema is None:
            return None
        schema = StructType()
        for name, type in stream.schema.items():
            parsed = StructType.fromDDL(f"c {type}")
            assert isinstance(parsed, StructType)
            schema = schema.add(name, parsed["c"].dataType)
        return self._session.createDataFrame([], schema)


def _start(error: Any) -> int | None:
    """The offset in the query that Spark blames; None where it does not say."""
    contexts = error.getQueryContext() or ()
    starts = [int(context.startIndex()) for context in contexts if hasattr(context, "startIndex")]
    return next((start for start in starts if start >= 0), None)


def _diagnostic(place: str, error: Any, position: Position | None) -> Diagnostic:
    from codegen.codes import CODES

    first = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return Diagnostic(CODES["BLZ551"], f"{place}: {first.split('; line ')[0]}", position)
