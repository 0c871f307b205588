"""Components evaluated by Spark itself, several inputs in one job.

Each input is a branch of a union: the component's own code, on frames with just its records in
their order. Nothing is rewritten, so whatever the code does, windows, Python functions, joins, it
does as in a micro-batch.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import time
from collections.abc import Callable, Sequence
from functools import lru_cache, reduce
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from blazes.verify.operators import Operator, Schema, Unknown
from blazes.verify.records import Evaluated, Failure, Inputs, Output, canonical

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

AT_ONCE: Final = 16
"""Inputs in one job: more take longer to plan than they save."""
CASE: Final = "__case"
CONF: Final = {
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.execution.pythonUDF.arrow.enabled": "false",
    "spark.python.worker.reuse": "true",
}
"""What saves planning and compiling on a few records, and keeps their order."""


class OutOfTime(Exception):  # noqa: N818
    """The time was over before the next job began."""


class Spark:
    """Evaluates any component in a session.

    Args:
        session: what runs the jobs.
        until: time (monotonic, seconds) from which no job begins; one that runs is waited for.
    """

    name: Final = "Spark"

    def __init__(self, session: SparkSession, *, until: float = float("inf")) -> None:
        self.session = session
        self.until = until
        self.jobs = 0

    def check(self) -> None:
        """OutOfTime where no job may begin any more."""
        if time.monotonic() > self.until:
            raise OutOfTime

    def evaluate(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        """The output for each of the inputs; OutOfTime between two jobs."""
        results: list[Evaluated] = []
        for start in range(0, len(many), AT_ONCE):
            results += self._together(operator, many[start : start + AT_ONCE])
        return results

    def schema(self, operator: Operator) -> Schema:
        """The columns of the output with their types; Unknown where it does not run."""
        from pyspark.errors import PySparkException

        nothing = tuple((name, ()) for name in operator.schemas)
        try:
            frame = self._apply(operator, self._frames(operator, [nothing], 0))
        except (PySparkException, TypeError, ValueError, KeyError, AttributeError) as error:
            raise Unknown(f"it does not run on tables: {_first_line(error)}") from None
        return {field.name: field.dataType.simpleString() for field in frame.schema.fields}

    def _together(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        from py4j.protocol import Py4JJavaError
        from pyspark.errors import PySparkException

        try:
            return self._job(operator, many)
        except Py4JJavaError as error:  # a mistake of Spark's own optimizer, for example
            if len(many) == 1:
                return [Failure(str(error.java_exception.getMessage()).partition("\n")[0])]
        except (PySparkException, ArithmeticError, ValueError, TypeError, KeyError) as error:
            if len(many) == 1:
                return [Failure(_first_line(error))]
        half = len(many) // 2
        return self._together(operator, many[:half]) + self._together(operator, many[half:])

    def _job(self, operator: Operator, many: Sequence[Inputs]) -> list[Evaluated]:
        from pyspark.sql import functions as sf

        self.check()
        self.jobs += 1
        branches: list[DataFrame] = []
        names: tuple[str, ...] = ()
        tables = self._whole(operator, many)
        for number in range(len(many)):
            frames = {
                name: frame.where(sf.col(CASE) == number).drop(CASE)
                for name, frame in tables.items()
            }
            output = self._apply(operator, frames)
            names = tuple(output.columns)
            plain = output.toDF(*(f"c{i}" for i in range(len(names))))
            branches.append(plain.select(sf.lit(number).alias(CASE), "*"))
        rows: list[list[tuple[Any, ...]]] = [[] for _ in many]
        for row in reduce(lambda a, b: a.unionAll(b), branches).collect():
            number, *values = row
            rows[number].append(tuple(map(canonical, values)))
        return [Output(names, tuple(output_rows)) for output_rows in rows]

    def _frames(self, operator: Operator, many: Sequence[Inputs], at: int) -> dict[str, DataFrame]:
        from pyspark.sql import functions as sf

        return {
            name: frame.where(sf.col(CASE) == at).drop(CASE)
            for name, frame in self._whole(operator, many).items()
        }

    def _whole(self, operator: Operator, many: Sequence[Inputs]) -> dict[str, DataFrame]:
        """The rows of every input in one frame for each interface, with the input's number."""
        frames = {}
        for name, schema in operator.schemas.items():
            ddl = ", ".join(f"`{column}` {kind}" for column, kind in schema.items())
            rows = [
                (number, *row)
                for number, inputs in enumerate(many)
                for interface, its in inputs
                if interface == name
                for row in its
            ]
            frame = self.session.createDataFrame(rows, f"`{CASE}` INT, {ddl}")
            frames[name] = frame.coalesce(1)
        return frames

    def _apply(self, operator: Operator, frames: dict[str, DataFrame]) -> DataFrame:
        code = operator.code
        if code is None:
            (frame,) = frames.values()
            return frame
        if code.python is not None:
            return function(code.python, operator.folder)(**frames)
        assert code.sql is not None
        for name, frame in frames.items():
            frame.createOrReplaceTempView("`" + name.replace("`", "``") + "`")
        try:
            return self.session.sql(code.sql)
        finally:
            for name in frames:
                self.session.catalog.dropTempView(name)


@lru_cache
def function(reference: str, folder: Path) -> Callable[..., DataFrame]:
    """The function `module:function` of a file beside the dataflow, or of an installed module.

    Raises:
        Unknown: there is no such module or function, or it cannot be imported.
    """
    name, _, attribute = reference.partition(":")
    try:
        module = _module(name, folder)
    except Exception as error:  # whatever the user's module raises
        raise Unknown(f"{name} cannot be imported: {_first_line(error)}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        raise Unknown(f"{name} has no function {attribute}")
    return function  # type: ignore[no-any-return]


def _module(name: str, folder: Path) -> ModuleType:
    """The module; one beside the dataflow travels by value to Spark's workers, as text would."""
    from pyspark import cloudpickle

    base = folder.resolve().joinpath(*name.split("."))
    file = next((f for f in (base.with_suffix(".py"), base / "__init__.py") if f.is_file()), None)
    if file is None:
        return importlib.import_module(name)
    beside = str(folder.resolve())
    before = set(sys.modules)
    sys.path.insert(0, beside)
    try:
        spec = importlib.util.spec_from_file_location(f"_blazes_{abs(hash(file))}_{name}", file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(beside)
    for known in set(sys.modules) - before:
        if (getattr(sys.modules[known], "__file__", None) or "").startswith(beside):
            cloudpickle.register_pickle_by_value(sys.modules[known])  # type: ignore[no-untyped-call]
    return module


def _first_line(error: BaseException) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    if not lines:
        return type(error).__name__
    traced = [line.strip() for line in lines if line.startswith(("TypeError", "ValueError"))]
    return (traced or lines)[0].strip()[:200]
