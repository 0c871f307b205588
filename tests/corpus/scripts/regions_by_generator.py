"""A session of a context manager, sources of a generator, and a loop that restarts what has died."""

import time
from contextlib import contextmanager

from pyspark.sql import SparkSession

SCHEMA = "id BIGINT, country STRING, amount DOUBLE"


@contextmanager
def session(name):
    built = SparkSession.builder.appName(name).getOrCreate()
    try:
        yield built
    finally:
        built.stop()


def regions(spark):
    for region in ("eu", "us"):
        yield region, spark.readStream.schema(SCHEMA).json(f"/lake/{region}")


def begin(spark):
    for region, rows in regions(spark):
        sums = rows.groupBy("country").count()
        sums.writeStream.queryName(f"{region}_sums").outputMode("complete").format("memory").start()


if __name__ == "__main__":
    with session("regions") as spark:
        while True:
            try:
                begin(spark)
                spark.streams.awaitAnyTermination()
                break
            except RuntimeError as failed:
                print("again:", failed)
                time.sleep(5)
