"""The streaming job wordcount, compiled from sealed.yaml.

Compiling again writes this file anew: changes belong into the dataflow.
sha256 of the input: 131600589e76b53bb6656505e07d7f54719a33a4c72c6ca65f4b5a0fdada4b78

Stages, each after what it reads:

  source tweets
      reads json data/tweets; sealed on [batch]: a record with sealed is a punctuation
  transform Splitter.words
      works on single records, inside its consumers
  seal Count.counts
      holds words back until a partition of [batch] is complete, and works on it once,
      whole
  transform Commit.db
      passes its records through, inside its consumers
  sink db
      writes parquet results/db, one folder for each commit: exactly once
"""

from pathlib import Path

from flux_runtime.spark import Job, Producers, Punctuation, main, sql
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
        schema="""
            batch bigint,
            text string,
            producer string,
            sealed boolean,
            count bigint
        """,
        producer="producer",
        punctuation=Punctuation(when="sealed", count="count"),
    )

    words = tweets.transform("Splitter.words", splitter_words)

    counts = job.seal(
        "Count.counts",
        count_counts,
        waits={"words": [words]},
        key=["batch"],
        producers={
            "tweets": Producers.registered(
                "tweets",
                registrations="data/producers.json",
            ),
        },
        release="whole",
        late="dead-letter",
        seal_timeout_s=600.0,
    )

    job.sink("db", [counts], format="parquet")


if __name__ == "__main__":
    main(build, name="wordcount", folder=Path(__file__).parent)
