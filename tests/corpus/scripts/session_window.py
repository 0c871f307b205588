from pyspark.sql import SparkSession
from pyspark.sql.functions import count, session_window

spark = SparkSession.builder.getOrCreate()
clicks = spark.readStream.schema("user STRING, at TIMESTAMP").json("/in/clicks")
s = (clicks.withWatermark("at", "10 minutes").groupBy(session_window("at", "5 minutes"), "user")
     .agg(count("*").alias("clicks")))
s.writeStream.format("parquet").outputMode("append").option("checkpointLocation", "/c").start("/lake/sessions").awaitTermination()
