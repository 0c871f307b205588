"""The parts of a compiled job: a graph of sources, units and sinks, and `main` that runs it.

    from flux_runtime.spark import Job, Producers, Punctuation, main, sql

    def build(job: Job) -> None: ...

    main(build, name="wordcount", folder=Path(__file__).parent)

- `job`: the graph as its author declares it, of `units` and the `feed`s between them.
- `main`: arguments, folders, ZooKeeper, the `session`; `fingerprint`: what the state depends
  on; `changes`: whether a job goes on from it after changes, to a `function_text` for example;
  `backfill`: a past range of it, beside a running one;
  `runner`: runs the units;
  `context`: what each of them is handed; `lineage`: the run as OpenLineage events.
- `query`: one streaming query, its checkpoint's errors explained; `native`:
  a unit that is nothing but such a query; `frames`: what is done to DataFrames; `key_columns`:
  keys of partitions as columns; `faults`: points at which tests end the process.
- Rooms: `ends` for sources and sinks; `sealed`, `stateful` and `flux` for the other kinds of
  units, which know nothing of each other.
"""

from flux_runtime.spark.ends.avro import Avro
from flux_runtime.spark.feed import Feed, Producers, Punctuation
from flux_runtime.spark.flux.components import Processor, Step
from flux_runtime.spark.frames import deduplicated, sql
from flux_runtime.spark.job import Job
from flux_runtime.spark.main import main

__all__ = [
    "Avro",
    "Feed",
    "Job",
    "Processor",
    "Producers",
    "Punctuation",
    "Step",
    "deduplicated",
    "main",
    "sql",
]
