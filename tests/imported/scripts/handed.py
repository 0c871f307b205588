"""Bookings, handed to functions that have something with them, out of a configuration file."""

import json
from functools import partial
from pathlib import Path

import pyspark.sql.functions as F
from pyspark.sql import SparkSession

settings = json.loads((Path(__file__).parent / "handed.json").read_text())


def summing(path, signs):
    def sums(batch, number):
        sign = F.create_map(*[F.lit(part) for pair in signs.items() for part in pair])
        batch.groupBy("kind").agg(F.expr("sum(cents) AS cents")).withColumn("sign", sign[F.col("kind")]).write.mode(
            "append"
        ).json(path)

    return sums


def counting(path, columns, batch, number, *, mode):
    batch.groupBy(*columns).count().withColumn("batch", F.lit(number)).write.mode(mode).json(path)


class Largest:
    def __init__(self, spark, lake, limit):
        self.spark = spark
        self.path = f"{lake}/largest"
        self.limit = limit

    def save(self, batch, number):
        limits = self.spark.createDataFrame([(self.limit,)], "least BIGINT")
        large = batch.agg(F.expr("max(cents) AS cents")).crossJoin(limits)
        large.where("cents >= least").write.mode("append").json(self.path)


class Numbered:
    def __call__(self, batch, number):
        batch.withColumn("batch", F.lit(number)).write.mode("append").json("lake/handed/numbered")


spark = SparkSession.builder.getOrCreate()
bookings = spark.readStream.schema("account STRING, cents BIGINT, kind STRING").option("maxFilesPerTrigger", 1).json(settings["data"])
lake = settings["lake"]
takers = {
    "sums": summing(f"{lake}/sums", settings["signs"]),
    "counts": partial(counting, f"{lake}/counts", settings["columns"], mode="append"),
    "largest": Largest(spark, lake, settings["limit"]).save,
    "numbered": Numbered(),
}
for name, taker in takers.items():
    query = bookings.writeStream.foreachBatch(taker).queryName(name).option("checkpointLocation", f"checkpoints/handed/{name}")
    query.trigger(availableNow=True).start().awaitTermination()
