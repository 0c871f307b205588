from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
events = spark.readStream.schema("event_id STRING, ts TIMESTAMP").json("/in/events")
ids = events.withWatermark("ts", "30 minutes").dropDuplicatesWithinWatermark(["event_id"]).select("event_id")
ids.writeStream.format("parquet").option("checkpointLocation", "/chk/ids").start("/lake/ids").awaitTermination()
