"""Ask Spark which random queries it runs over a stream, and compare with what the compiler says.

    python benchmarks/streaming_on_spark.py --seed 0 --queries 300 [--plant]

Every query of `random_queries.py` is started over streams of one row, in append and in update mode.
`codegen.streaming` has to refuse those that Spark refuses. Prints each that it does not; the status
is 1 if there is one. It may refuse others, whose records are then kept without need; they are
counted. With `--plant` it refuses none, which is to be noticed.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from pyspark.errors import ParseException, PySparkException  # noqa: E402
from pyspark.sql import DataFrame, SparkSession  # noqa: E402

from annotations.whitebox.ir import Relation, Role  # noqa: E402
from annotations.whitebox.sql import read  # noqa: E402
from benchmarks.random_queries import Query, Table, random_query  # noqa: E402
from codegen.streaming import refused  # noqa: E402
from flux_runtime.spark.frames import sql  # noqa: E402
from flux_runtime.spark.session import start_session  # noqa: E402

MODES: Final = ("append", "update")


class Comparison:
    """Queries on their way to Spark.

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

    def differences(self, query: Query) -> list[str]:
        """The modes in which Spark refuses a query and nothing was said, and why it does."""
        inputs = {table.name: table.input for table in query.schemas.tables}
        plan = read(query.text, inputs=inputs).plan
        frames = {table.name: self._frame(table) for table in query.schemas.tables}
        try:
            frame = sql(query.text, **frames)
        except ParseException:  # a query that Spark does not read at all
            self.counts["unread"] += 1
            return []
        except PySparkException as error:
            return self._compared(query, plan, dict.fromkeys(MODES, str(error)))
        if not frame.isStreaming:
            self.counts["without a stream"] += 1
            return []
        return self._compared(query, plan, {mode: self._run(frame, mode) for mode in MODES})

    def _compared(
        self, query: Query, plan: Relation, errors: Mapping[str, str | None]
    ) -> list[str]:
        found = []
        for mode, error in errors.items():
            appends = mode == "append"
            construct = None if self.planted else refused(query.text, plan, appends=appends)
            self.counts[f"{mode}, {'runs' if error is None else 'refused'}"] += 1
            self.counts["refused without need"] += construct is not None and error is None
            if construct is None and error is not None:
                found.append(f"{mode}: {' '.join(error.split())[:300]}\n    {query.text}")
        return found

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
    parser.add_argument("--plant", action="store_true", help="let every query pass")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        conf = {"spark.sql.shuffle.partitions": "1"}
        session = start_session(
            "streaming", master="local[2]", conf=conf, log=Path(folder) / "log.txt"
        )
        comparison = Comparison(session, Path(folder), planted=args.plant)
        number = 0
        for seed in range(args.seed, args.seed + args.queries):
            for difference in comparison.differences(random_query(random.Random(seed))):
                number += 1
                print(f"seed {seed}, {difference}", flush=True)
        session.stop()
    counts = "; ".join(f"{name}: {count}" for name, count in sorted(comparison.counts.items()))
    print(f"{args.queries} queries; {counts}; differences: {number}")
    return 1 if number else 0


if __name__ == "__main__":
    sys.exit(main())
