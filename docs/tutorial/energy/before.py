"""Sites that used less than 5 kWh in an hour get a credit; the job as it is today."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

readings = (
    spark.readStream.format("json")
    .schema("site STRING, hour BIGINT, meter STRING, wh BIGINT, gateway STRING")
    .load("data/readings")
)
usage = readings.where("wh >= 0").groupBy("site", "hour").sum("wh")
credits = usage.where("`sum(wh)` < 5000")
credits.writeStream.outputMode("update").format("console").start().awaitTermination()
