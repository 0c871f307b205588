"""The streaming job shop, compiled from shop.yaml.

Compiling again writes this file anew: changes belong into the dataflow.
sha256 of the input: 295c656ec288c3f0d11f3f6184decd008d15caf2937b3799b1a56c48d21b87e2

Stages, each after what it reads:

  source web
      reads delta data/web; sealed on [shop]: a record with closed is a punctuation; a
      record is known by its [till, receipt]
  source tills
      reads json data/tills; sealed on [shop]: a record with closed is a punctuation; a
      record is known by its [till, receipt]
  source visitors
      reads json data/visitors; sealed on [shop]: a record with closed is a punctuation
  source clock
      reads parquet data/clock
  source notes
      reads csv data/notes
  transform Clean.orders
      works on single records, inside its consumers
  seal Turnover.turnover
      holds sales back until a partition of [store] is complete, and works on it once,
      whole
  channel Turnover.turnover
      durable stream turnover, in committed folders
  seal Ranking.ranking
      holds turnover back until a partition of [store] is complete, and works on it
      once, whole
  seal Visits.visits
      holds visits back until a partition of [shop] is complete, and works on it once,
      whole
  transform Minutes.minutes
      a streaming query with Spark's own state, append mode: a group is written once,
      when the newest at is 10 minutes past it
  order Journal.class
      takes my-notes micro-batch by micro-batch, in the order that Spark's offset log
      records; computes the partitions of [article] that changed again
  sink archive
      writes delta archive, one transaction for each commit: exactly once
  sink ranking
      writes parquet results/ranking, one folder for each commit: exactly once
  sink visits
      writes parquet results/visits, one folder for each commit: exactly once
  sink minutes
      writes parquet results/minutes, one folder for each commit: exactly once
  sink prices
      writes parquet results/prices, one folder for each commit: exactly once
"""

from pathlib import Path

from flux_runtime.spark import Job, Producers, Punctuation, main, sql
from pyspark.sql import DataFrame


def clean_orders(orders: DataFrame) -> DataFrame:
    """Clean.orders <- orders: CR.

    Repairs prices, with the "house rules" of operators.py.
    """
    import operators

    return operators.clean(orders=orders)


def turnover_turnover(sales: DataFrame) -> DataFrame:
    """Turnover.turnover <- sales: OW[article,store].

    Turnover by shop and article, once the shop has closed.
    """
    import operators

    return operators.turnover(sales=sales)


def ranking_ranking(turnover: DataFrame) -> DataFrame:
    """Ranking.ranking <- turnover: OW[store]."""
    return sql(
        r"""
        SELECT store, regexp_replace(article, '\\s+', ' ') AS article, cents,
               rank() OVER (PARTITION BY store ORDER BY cents DESC) AS place
        FROM turnover
        """,
        turnover=turnover,
    )


def visits_visits(visits: DataFrame) -> DataFrame:
    """Visits.visits <- visits: OW[kind,shop].

    How many visitors, by shop and kind.
    """
    return sql(
        """
        SELECT shop, kind, count(*) AS n, sum(persons) AS persons,
          avg(persons) AS mean
        FROM visits
        WHERE kind <> 'staff'
        GROUP BY shop, kind
        HAVING n > 2
        """,
        visits=visits,
    )


def visits_visits_partial(visits: DataFrame) -> DataFrame:
    """Visits.visits, step 1 of 2 <- the records of a micro-batch."""
    return sql(
        """
        SELECT shop, kind, __producer, __count, partial_kept, COUNT(*) AS __rows,
          SUM(persons) FILTER(WHERE partial_kept) AS partial_1,
          SUM(CAST(persons AS DOUBLE)) FILTER(WHERE partial_kept) AS partial_2,
          COUNT(persons) FILTER(WHERE partial_kept) AS partial_3
        FROM (SELECT *, CASE WHEN __count < 0 THEN COALESCE(kind <> 'staff', FALSE)
          ELSE FALSE END AS partial_kept FROM visits)
        GROUP BY shop, kind, __producer, __count, partial_kept
        """,
        visits=visits,
    )


def visits_visits_total(visits: DataFrame) -> DataFrame:
    """Visits.visits, step 2 of 2 <- the partial aggregates of partitions."""
    return sql(
        """
        SELECT shop, kind, SUM(__rows) AS n, SUM(partial_1) AS persons,
          SUM(partial_2) / NULLIF(SUM(partial_3), 0) AS mean
        FROM visits
        WHERE partial_kept
        GROUP BY shop, kind
        HAVING SUM(__rows) > 2
        """,
        visits=visits,
    )


def minutes_minutes(visits: DataFrame) -> DataFrame:
    """Minutes.minutes <- visits: OW[at]."""
    return sql("SELECT at, count(*) AS n FROM visits GROUP BY at", visits=visits)


def journal_class(**frames: DataFrame) -> DataFrame:
    """Journal.class <- my-notes: OW[article].

    The last known price of an article, by the order of the notes.
    """
    return sql(
        "SELECT article, last(cents) AS cents FROM `my-notes` GROUP BY article",
        **frames,
    )


def build(job: Job) -> None:
    """Sources, components and sinks, each after what it reads."""
    web = job.source(
        "web",
        format="delta",
        path="data/web",
        schema="""
            shop string,
            article string,
            cents bigint,
            till string,
            receipt bigint,
            closed boolean,
            sent bigint,
            hash string
        """,
        producer="till",
        punctuation=Punctuation(when="closed", count="sent", digest="hash"),
        id=["till", "receipt"],
    )

    tills = job.source(
        "tills",
        format="json",
        path="data/tills",
        schema="""
            shop string,
            article string,
            cents bigint,
            till string,
            receipt bigint,
            closed boolean,
            sent bigint,
            hash string
        """,
        producer="till",
        punctuation=Punctuation(when="closed", count="sent", digest="hash"),
        id=["till", "receipt"],
    )

    visitors = job.source(
        "visitors",
        format="json",
        path="data/visitors",
        schema="""
            shop string,
            kind string,
            persons int,
            door string,
            closed boolean,
            sent bigint
        """,
        producer="door",
        punctuation=Punctuation(when="closed", count="sent"),
    )

    clock = job.source(
        "clock",
        format="parquet",
        path="data/clock",
        schema="at timestamp, shop string",
    )

    notes = job.source(
        "notes",
        format="csv",
        path="data/notes",
        options={"header": "true"},
        schema="number bigint, article string, cents bigint",
    )

    cleaned = [feed.transform("Clean.orders", clean_orders) for feed in [web, tills]]

    turnover = job.seal(
        "Turnover.turnover",
        turnover_turnover,
        waits={"sales": cleaned},
        key=["store"],
        producers={
            "web": Producers.all(["till-1", "till-2"]),
            "tills": Producers.one(),
        },
        release="whole",
        renamed={"web": ["shop"], "tills": ["shop"]},
        late="fail",
        seal_timeout_s=120.0,
        remember_s=604800.0,
        forward=["store"],
    )

    ranking = job.seal(
        "Ranking.ranking",
        ranking_ranking,
        waits={"turnover": [turnover]},
        key=["store"],
        release="whole",
        late="dead-letter",
        seal_timeout_s=600.0,
    )

    visits = job.seal(
        "Visits.visits",
        visits_visits,
        waits={"visits": [visitors]},
        key=["shop"],
        producers={
            "visitors": Producers.registered(
                "visitors",
                registrations="data/doors.json",
            ),
        },
        release="whole",
        late="dead-letter",
        seal_timeout_s=600.0,
        partial=(visits_visits_partial, visits_visits_total),
    )

    minutes = job.native(
        "Minutes.minutes",
        minutes_minutes,
        inputs={"visits": [clock]},
        output_mode="append",
        watermark=("at", "10 minutes"),
    )

    prices = job.stateful(
        "Journal.class",
        journal_class,
        writes={"my-notes": [notes]},
        monotone=False,
        ordered=True,
        order_by=["number"],
        changed_by=["article"],
    )

    job.sink(
        "archive",
        cleaned,
        format="delta",
        path="archive",
        options={"mergeSchema": "true"},
    )

    job.sink("ranking", [ranking], format="parquet")
    job.sink("visits", [visits], format="parquet")
    job.sink("minutes", [minutes], format="parquet")
    job.sink("prices", [prices], format="parquet")


if __name__ == "__main__":
    main(
        build,
        name="shop",
        folder=Path(__file__).parent,
        master="local[2]",
        zookeeper="127.0.0.1:2181",
        trigger="10 seconds",
        conf={"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "false"},
    )
