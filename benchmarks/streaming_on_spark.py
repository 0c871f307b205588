"""Ask Spark which random code it runs over a stream, and compare with what the compiler says.

    python benchmarks/streaming_on_spark.py --seed 0 --queries 300 --functions 300 [--plant]

Every query of `random_queries.py`, and every function of DataFrames of `random_frames.py`, is
started over streams of one row, in append and in update mode.
`codegen.streaming` has to refuse those that Spark refuses. Prints each that it does not; the status
is 1 if there is one. It may refuse others, whose records are then kept without need; they are
counted. With `--plant` it refuses none, which is to be noticed.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pyspark import cloudpickle  # noqa: E402
from pyspark.errors import ParseException, PySparkException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from annotations.whitebox.ir import Relation, Role  # noqa: E402
from annotations.whitebox.pyspark_code import Function, Input, read_functions  # noqa: E402
from annotations.whitebox.sandbox import Limits  # noqa: E402
from annotations.whitebox.sql import read  # noqa: E402
from benchmarks import random_frames  # noqa: E402
from benchmarks.random_queries import Query, Table, Value, random_query  # noqa: E402
from codegen.streaming import refused  # noqa: E402
from flux_runtime.spark.frames import sql  # noqa: E402
from flux_runtime.spark.session import start_session  # noqa: E402

MODES: Final = ("append", "update")


class Comparison:
    """Queries and functions on their way to Spark.

    Args:
        session: of Spark.
        folder: for the streams' files and checkpoints.
        planted: the compiler takes every query.
    """

    def __init__(self, session: SparkSession, folder: Path, *, planted: bool = False) -> None:
        self.session = session
        self.planted = planted
        self.folder = folder
        self.counts: Counter[str] = Counter()
        self._frames: dict[Table, DataFrame] = {}
        self._started = 0

    def of_query(self, query: Query) -> list[str]:
        """The modes in which Spark refuses a query and nothing was said, and why it does."""
        inputs = {table.name: table.input for table in query.schemas.tables}
        plan = read(query.text, inputs=inputs).plan
        frames = {table.name: self._frame(table) for table in query.schemas.tables}
        return self._compared(query.text, plan, lambda: sql(query.text, **frames))

    def of_functions(self, functions: Sequence[random_frames.Function]) -> Iterator[list[str]]:
        """The same for each function of DataFrames."""
        name = f"functions_{functions[0].name}"
        text = random_frames.HEAD + "".join(function.text for function in functions)
        (self.folder / f"{name}.py").write_text(text)
        columns = random_frames.COLUMNS
        given = {n: Input(columns, role) for n, role in random_frames.INPUTS.items()}
        asked = [Function(name, f.name, {n: given[n] for n in f.inputs}) for f in functions]
        plans = read_functions(asked, folder=self.folder, limits=Limits(seconds=600))
        sys.path.insert(0, str(self.folder))
        module = importlib.import_module(name)
        cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]
        values = tuple(Value(*column) for column in columns.items())
        frames = {n: self._frame(Table(n, values, i.role)) for n, i in given.items()}
        for function, plan in zip(functions, plans, strict=True):
            made = partial(getattr(module, function.name), *(frames[n] for n in function.inputs))
            yield self._compared(None, plan, made, shown=function.text)

    def _compared(
        self, query: str | None, plan: Relation, made: Callable[[], DataFrame], shown: str = ""
    ) -> list[str]:
        try:
            frame = made()
        except ParseException:  # a query that Spark does not read at all
            self.counts["unread"] += 1
            return []
        except PySparkException as error:
            errors: dict[str, str | None] = dict.fromkeys(MODES, str(error))
        else:
            if not frame.isStreaming:
                self.counts["without a stream"] += 1
                return []
            errors = {mode: self._run(frame, mode) for mode in MODES}
        differences = []
        for mode, error in errors.items():
            appends = mode == "append"
            construct = None if self.planted else refused(query, plan, appends=appends)
            self.counts[f"{mode}, {'runs' if error is None else 'refused'}"] += 1
            self.counts["refused without need"] += construct is not None and error is None
            if construct is None and error is not None:
                reason = " ".join(error.split())[:300]
                differences.append(f"{mode}: {reason}\n    {query or shown}")
        return differences

    def _run(self, frame: DataFrame, mode: str) -> str | None:
        """Why Spark does not run it; None: it does."""
        self._started += 1
        checkpoint = self.folder / f"checkpoint-{self._started}"
        writer = frame.writeStream.format("noop").outputMode(mode).trigger(availableNow=True)
        try:
            writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()
        except PySparkException as error:
            return str(error)
        return None

    def _frame(self, table: Table) -> DataFrame:
        if table not in self._frames:
            schema = ", ".join(f"`{name}` {kind}" for name, kind in table.columns)
            rows = self.session.createDataFrame([tuple(None for _ in table.columns)], schema)
            if table.role in (Role.STREAM, Role.REQUEST):
                path = str(self.folder / f"stream-{len(self._frames)}")
                rows.coalesce(1).write.parquet(path)
                rows = self.session.readStream.schema(schema).parquet(path)
            self._frames[table] = rows
        return self._frames[table]


def main(arguments: list[str] | None = None) -> int:
    """Compare; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--functions", type=int, default=300)
    parser.add_argument("--plant", action="store_true", help="let all pass")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        conf = {"spark.sql.shuffle.partitions": "1"}
        session = start_session(
            "streaming", master="local[2]", conf=conf, log=Path(folder) / "log.txt"
        )
        comparison = Comparison(session, Path(folder), planted=args.plant)
        number = 0
        queries = range(args.seed, args.seed + args.queries)
        functions = [
            random_frames.random_function(random.Random(seed), f"function_{seed}")
            for seed in range(args.seed, args.seed + args.functions)
        ]
        compared = itertools.chain(
            (comparison.of_query(random_query(random.Random(seed))) for seed in queries),
            comparison.of_functions(functions) if functions else (),
        )
        for seed, differences in zip(
            (*queries, *(f.name for f in functions)), compared, strict=True
        ):
            for difference in differences:
                number += 1
                print(f"seed {seed}, {difference}", flush=True)
        session.stop()
    counts = "; ".join(f"{name}: {count}" for name, count in sorted(comparison.counts.items()))
    print(f"{args.queries} queries, {len(functions)} functions; {counts}; differences: {number}")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
