"""What a compiled job is made of: a graph of sources, units and sinks, and `main` that runs it.

from flux_runtime.spark import Job, Producers, Punctuation, main, sql

def build(job: Job) -> None: ...

main(build, name="wordcount", folder=Path(__file__).parent)
"""

from flux_runtime.spark.feed import Feed, Producers, Punctuation
from flux_runtime.spark.frames import deduplicated, sql
from flux_runtime.spark.job import Job
from flux_runtime.spark.main import main
from flux_runtime.spark.step import Step

__all__ = ["Feed", "Job", "Producers", "Punctuation", "Step", "deduplicated", "main", "sql"]
