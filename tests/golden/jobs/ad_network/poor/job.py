"""The streaming job ad-network, compiled from replicated.yaml with Report=POOR.

Compiling again writes this file anew: changes belong into the dataflow.
sha256 of the input: 0f499b6d1aa81db4eb33473188e803f683cdfda1a48c90631858510f61377674

Stages, each after what it reads:

  source clicks
      reads json data/clicks; sealed on [campaign]: a record with sealed is a
      punctuation
  source queries
      reads json data/queries
  channel gossip
      durable stream gossip, which feeds back
  transform Cache.request
      works on single records, inside its consumers
  flux Report.response
      takes click and request in the one order that ZooKeeper records, on pairs of
      partitions of which one may fail; 3 replicas follow the same order
  channel Report.response
      durable stream answers, in committed folders
  transform answers
      the columns of its schema; each of 3 replicas puts out its own records
  transform Cache.response
      keeps request and response; an answer is given once, as soon as it follows from
      what has arrived
  sink results
      writes json results/results, one folder for each commit: exactly once
"""

from pathlib import Path

from flux_runtime.spark import Job, Punctuation, Step, main, sql
from pyspark.sql import DataFrame


def cache_request(request: DataFrame) -> DataFrame:
    """Cache.request <- request: CR."""
    return sql("SELECT id, campaign FROM request", request=request)


def report_response(click: DataFrame, request: DataFrame) -> DataFrame:
    """Report.response <- click: CW, request: OR[id].

    Keeps the clicks, and answers requests about ads.
    """
    return sql(
        """
        SELECT DISTINCT q.id, q.campaign
        FROM request q
        LEFT JOIN click c ON q.id = c.id
        GROUP BY q.id, q.campaign
        HAVING count(c.id) < 100
        """,
        click=click,
        request=request,
    )


def without_replica(records: DataFrame) -> DataFrame:
    """Streams whose schema does not tell replicas apart <- every replica."""
    return records.drop("replica")


def cache_response(request: DataFrame, response: DataFrame) -> DataFrame:
    """Cache.response <- request: CR, response: CW."""
    return sql(
        """
        SELECT DISTINCT q.analyst, r.id, r.campaign
        FROM request q
        JOIN response r ON q.id = r.id AND q.campaign = r.campaign
        """,
        request=request,
        response=response,
    )


def cache_response_request_kept(request: DataFrame) -> DataFrame:
    """Cache.response, in place of records <- each record."""
    return sql("SELECT analyst, id, campaign FROM request", request=request)


def cache_response_response_kept(response: DataFrame) -> DataFrame:
    """Cache.response, in place of records <- each record."""
    return sql("SELECT id, campaign FROM response", response=response)


def build(job: Job) -> None:
    """Sources, components and sinks, each after what it reads."""
    clicks = job.source(
        "clicks",
        format="json",
        path="data/clicks",
        schema="""
            campaign int,
            id int,
            server string,
            sealed boolean,
            count bigint
        """,
        producer="server",
        punctuation=Punctuation(when="sealed", count="count"),
    )

    queries = job.source(
        "queries",
        format="json",
        path="data/queries",
        schema="analyst string, id int, campaign int",
    )

    gossip = job.loop("gossip", schema="id int, campaign int")
    misses = queries.transform("Cache.request", cache_request)

    answers = job.flux(
        "Report.response",
        [
            Step(
                "Report.response",
                report_response,
                query="""
                SELECT DISTINCT q.id, q.campaign
                FROM request AS q
                LEFT JOIN click AS c ON q.id = c.id
                GROUP BY q.id, q.campaign
                HAVING COALESCE(CAST(SUM(c.partial_1) AS BIGINT), CAST(0 AS INT)) < 100
                """,
                gives="answers",
                kept={
                    "click": [
                        """
                        SELECT id,
                          CAST(CASE WHEN id IS NULL THEN CAST(0 AS INT) ELSE CAST(1 AS
                            INT) END AS BIGINT) AS partial_1
                        FROM click
                        """,
                        """
                        SELECT id, CAST(SUM(partial_1) AS BIGINT) AS partial_1
                        FROM click
                        GROUP BY id
                        """,
                    ],
                },
                gate=["id"],
            ),
        ],
        writes={"click": [clicks]},
        reads={"request": [misses]},
        replicas=3,
        sites=3,
        partitions=4,
        balance="load",
        site_memory="512m",
        keep_every=200,
    )

    all_answers = answers.transform("answers", without_replica)

    results = job.stateful(
        "Cache.response",
        cache_response,
        writes={"response": [all_answers, gossip]},
        reads={"request": [queries]},
        monotone=True,
        partial=(
            {
                "request": (cache_response_request_kept, None),
                "response": (cache_response_response_kept, None),
            },
            cache_response,
        ),
    )

    job.sink("results", [results], format="json")
    job.close_loop(gossip, [results])


if __name__ == "__main__":
    main(build, name="ad-network", folder=Path(__file__).parent)
