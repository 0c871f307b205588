import pandas as pd
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def score(frames):
    for frame in frames:
        frame["score"] = frame["amount"].rank(pct=True)
        yield frame


tx = spark.readStream.schema("id STRING, amount DOUBLE").json("/in/tx")
tx.mapInPandas(score, "id STRING, amount DOUBLE, score DOUBLE").writeStream.format("parquet").option(
    "checkpointLocation", "/chk/tx").start("/lake/tx").awaitTermination()
