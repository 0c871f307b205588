"""The streaming job ad-network-single, compiled from single.yaml.

Compiling again writes this file anew: changes belong into the dataflow.
sha256 of the input: bddfd7182693aab3add180c190f8bb9f5a829f962246bf1b32ed288b8c0f3be0

Stages, each after what it reads:

  source clicks
      reads json data/clicks
  source queries
      reads json data/queries
  order Report.response
      takes click and request micro-batch by micro-batch, in the order that Spark's
      offset log records; each record of request is answered once, from what stands
      before it
  sink results
      writes json poor, one folder for each commit: exactly once
"""

from pathlib import Path

from flux_runtime.spark import Job, main, sql
from pyspark.sql import DataFrame


def report_response(click: DataFrame, request: DataFrame) -> DataFrame:
    """Report.response <- click: CW, request: OR[id].

    Which ads have few clicks so far? Who asks later gets another answer.
    """
    return sql(
        """
        SELECT DISTINCT q.analyst, q.id
        FROM request q
        LEFT JOIN click c ON q.id = c.id
        GROUP BY q.analyst, q.id
        HAVING count(c.id) < 100
        """,
        click=click,
        request=request,
    )


def build(job: Job) -> None:
    """Sources, components and sinks, each after what it reads."""
    clicks = job.source(
        "clicks",
        format="json",
        path="data/clicks",
        schema="id int, campaign int, at timestamp",
    )

    queries = job.source(
        "queries",
        format="json",
        path="data/queries",
        schema="analyst string, id int, at timestamp",
    )

    results = job.stateful(
        "Report.response",
        report_response,
        writes={"click": [clicks]},
        reads={"request": [queries]},
        monotone=False,
        ordered=True,
        order_by=["at"],
    )

    job.sink("results", [results], format="json", path="poor")


if __name__ == "__main__":
    main(build, name="ad-network-single", folder=Path(__file__).parent)
