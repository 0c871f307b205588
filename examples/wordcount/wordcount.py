"""Word count over a stream of tweets: what wordcount.yaml describes, declared in Python.

Both give the same plan and the same job. Blazes reads this module and does not run it;
`python wordcount.py` runs the job.
"""

import blazes

blazes.dataflow("wordcount")

tweets = blazes.source(
    "tweets",
    schema={
        "batch": "BIGINT",
        "user": "STRING",
        "text": "STRING",
        "producer": "STRING",
        "sealed": "BOOLEAN",
        "count": "BIGINT",
    },
    format="json",
    path="data/tweets",
    options={"maxFilesPerTrigger": 25},
    seal=["batch"],
    producer="producer",
    punctuation={"when": "sealed", "count": "count"},
    producers={"registered": "data/producers.json"},
)

words = blazes.sql(
    "Splitter",
    "SELECT batch, explode(regexp_extract_all(lower(text), "
    """"([#@]?[a-z0-9]+(?:['_-][a-z0-9]+)*)", 1)) AS word """
    "FROM tweets",
    reads=[tweets],
    output="words",
    label="CR",
    description="Takes a tweet apart into words, hashtags and mentions.",
)
blazes.stream(
    "words",
    from_="Splitter.words",
    to="Count.words",
    schema={"batch": "BIGINT", "word": "STRING"},
)

counts = blazes.sql(
    "Count",
    "SELECT batch, word, count(*) AS frequency FROM words GROUP BY batch, word",
    reads=[words],
    output="counts",
    label="OW[word, batch]",
    output_mode="update",
    description="Counts each word in each batch. A count is right once the batch is complete.",
)
blazes.stream(
    "counts",
    from_="Count.counts",
    to="Commit.counts",
    schema={"batch": "BIGINT", "word": "STRING", "frequency": "BIGINT"},
)

db = blazes.component(
    "Commit",
    reads=[counts],
    output="db",
    label="CW",
    description="Appends the counts to the store, in whatever order they come.",
)
blazes.sink(db, format="parquet")

if __name__ == "__main__":
    blazes.run(__file__, available_now=True)
