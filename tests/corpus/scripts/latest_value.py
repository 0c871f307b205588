from pyspark.sql import SparkSession
from pyspark.sql.functions import last, max_by

spark = SparkSession.builder.getOrCreate()
gps = spark.readStream.schema("truck STRING, lat DOUBLE, lon DOUBLE, at TIMESTAMP").json("/in/gps")
gps.groupBy("truck").agg(last("lat").alias("lat"), last("lon").alias("lon")).writeStream.outputMode(
    "update").queryName("arrived_last").format("console").start()
gps.groupBy("truck").agg(max_by("lat", "at").alias("lat")).writeStream.outputMode(
    "update").queryName("newest").format("console").start()
spark.streams.awaitAnyTermination()
