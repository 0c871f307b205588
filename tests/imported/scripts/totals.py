"""Totals by device, shown in memory: a script from top to bottom."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructType, TimestampType

spark = SparkSession.builder.appName("totals").getOrCreate()
schema = StructType().add("device", StringType()).add("wh", LongType()).add("ts", TimestampType())
readings = (
    spark.readStream.format("csv")
    .schema(schema)
    .option("header", True)
    .option("maxFilesPerTrigger", 1)
    .load("data/readings")
)
totals = (
    readings.where(~F.col("wh").isNull() & (F.col("wh") >= 0))
    .groupBy(F.col("device"))
    .agg(
        F.sum("wh").alias("wh"),
        F.max("ts").cast("long").alias("last_seen"),
        F.count("*").alias("n"),
    )
)
query = (
    totals.writeStream.format("memory")
    .queryName("totals")
    .outputMode("complete")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
