from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
events = spark.readStream.schema("event_id STRING, user STRING, ts TIMESTAMP, payload STRING").json("/in/events")

deduped = events.withWatermark("ts", "1 hour").dropDuplicates(["event_id", "ts"])
deduped.writeStream.format("delta").option("checkpointLocation", "/chk/dedup").start("/lake/events")
spark.streams.awaitAnyTermination()
