"""Runs streaming scripts, and then compiled jobs, in one Spark: `in_one_spark.py FILE...`.

Whatever is called `job.py` is a job. A notebook gets its session as its platform gives it. What a
script shows in memory is written to `shown/NAME.json` as rows of JSON, and what it writes to `lake`
is kept as `shown/lake`.
"""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from annotations.whitebox.following.program import program


def main() -> None:
    """Run the files in the folder where this is started."""
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    jobs = [file for file in sys.argv[1:] if Path(file).name == "job.py"]
    for name in [file for file in sys.argv[1:] if file not in jobs]:
        names = {"__name__": "__main__", "spark": spark, "__file__": name}
        exec(compile(program(Path(name)), name, "exec"), names)
    Path("shown").mkdir()
    for table in spark.catalog.listTables():
        if table.isTemporary and not spark.table(table.name).isStreaming:
            rows = [json.loads(row) for row in spark.table(table.name).toJSON().collect()]
            Path("shown", f"{table.name}.json").write_text(json.dumps(rows))
    Path("lake").rename("shown/lake")  # functions of sinks write there again
    for job in jobs:
        sys.path.insert(0, str(Path(job).parent))
        sys.argv = [job, "--available-now"]
        try:
            runpy.run_path(job, run_name="__main__")
        except SystemExit as ended:
            if ended.code:
                raise


if __name__ == "__main__":
    main()
