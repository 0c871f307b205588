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


def report_response_click_kept(click: DataFrame) -> DataFrame:
    """Report.response, in place of records <- each record."""
    return sql(
        """
        SELECT id, CAST(CASE WHEN id IS NULL THEN 0 ELSE 1 END AS BIGINT) AS partial_1
        FROM click
        """,
        click=click,
    )


def report_response_click_combined(click: DataFrame) -> DataFrame:
    """Report.response, combined <- what is kept of it."""
    return sql(
        "SELECT id, SUM(partial_1) AS partial_1 FROM click GROUP BY id",
        click=click,
    )


def report_response_over_kept(click: DataFrame, request: DataFrame) -> DataFrame:
    """Report.response, over what is kept <- what is kept of each input."""
    return sql(
        """
        SELECT DISTINCT q.analyst, q.id
        FROM request AS q
        LEFT JOIN click AS c ON q.id = c.id
        GROUP BY q.analyst, q.id
        HAVING COALESCE(SUM(c.partial_1), 0) < 100
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
        partial=(
            {"click": (report_response_click_kept, report_response_click_combined)},
            report_response_over_kept,
        ),
    )

    job.sink("results", [results], format="json", path="poor")


if __name__ == "__main__":
    main(build, name="ad-network-single", folder=Path(__file__).parent)
