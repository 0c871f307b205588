"""The streaming job sensors, compiled from silence.yaml.

Compiling again writes this file anew: changes belong into the dataflow.
sha256 of the input: f2d5fdcc5d64f2422b21c10ccc4aa7e461db9784342dab8e12b82f360720df30

Stages, each after what it reads:

  source readings
      reads json data
  flux Silence.silences
      takes readings in the one order that ZooKeeper records, on pairs of partitions of
      which one may fail
  sink silences
      writes json silences, one folder for each commit: exactly once
"""

from pathlib import Path

from flux_runtime.spark import Job, Processor, Step, main

import sensors


def build(job: Job) -> None:
    """Sources, components and sinks, each after what it reads."""
    readings = job.source(
        "readings",
        format="json",
        path="data",
        schema="id STRING, temperature INT, at TIMESTAMP",
    )

    silences = job.flux(
        "Silence.silences",
        [
            Step(
                "Silence.silences",
                sensors.Silence,
                schema="id STRING, since BIGINT, heard BIGINT",
                processor=Processor(key=["id"], event_time="at", delay_s=1.0),
                gate=["id"],
            ),
        ],
        writes={"readings": [readings]},
        sites=3,
        partitions=4,
    )

    job.sink("silences", [silences], format="json", path="silences")


if __name__ == "__main__":
    main(build, name="sensors", folder=Path(__file__).parent)
