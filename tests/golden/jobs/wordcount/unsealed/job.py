"""The streaming job wordcount-unsealed, compiled from unsealed.yaml.

Compiling again writes this file anew: changes belong into the dataflow.
sha256 of the input: 5a3d79e1364400b32159f22ff7e88b477fc591d2e4ed9c426096390c6466def3

Stages, each after what it reads:

  source tweets
      reads json data/tweets
  transform Splitter.words
      works on single records, inside its consumers
  order Count.counts
      takes words micro-batch by micro-batch, in the order that Spark's offset log
      records; a group is written again when it changes
  transform Commit.db
      passes its records through, inside its consumers
  sink db
      writes parquet results/db, one folder for each commit: exactly once
"""

from pathlib import Path

from flux_runtime.spark import Job, main, sql
from pyspark.sql import DataFrame


def splitter_words(tweets: DataFrame) -> DataFrame:
    """Splitter.words <- tweets: CR.

    Takes tweets apart.
    """
    return sql(
        "SELECT batch, explode(split(text, ' ')) AS word FROM tweets",
        tweets=tweets,
    )


def count_counts(words: DataFrame) -> DataFrame:
    """Count.counts <- words: OW[batch,word]."""
    return sql(
        """
        SELECT batch, word, count(*) AS n
        FROM words
        GROUP BY batch, word
        """,
        words=words,
    )


def build(job: Job) -> None:
    """Sources, components and sinks, each after what it reads."""
    tweets = job.source(
        "tweets",
        format="json",
        path="data/tweets",
        schema="batch bigint, text string",
    )

    words = tweets.transform("Splitter.words", splitter_words)

    counts = job.native(
        "Count.counts",
        count_counts,
        inputs={"words": [words]},
        output_mode="update",
        ordered=True,
    )

    job.sink("db", [counts], format="parquet")


if __name__ == "__main__":
    main(build, name="wordcount-unsealed", folder=Path(__file__).parent)
