from pyspark.sql import SparkSession
from pyspark.sql.functions import avg, col, count, window, window_time

spark = SparkSession.builder.getOrCreate()
hits = spark.readStream.schema("page STRING, at TIMESTAMP").json("/in/hits").withWatermark("at", "1 minute")
per_minute = hits.groupBy(window("at", "1 minute"), "page").agg(count("*").alias("n"))
per_hour = per_minute.groupBy(window(window_time(col("window")), "1 hour"), "page").agg(avg("n").alias("mean"))
per_hour.writeStream.outputMode("append").queryName("per_hour").format("console").start().awaitTermination()
