from pyspark.sql import SparkSession
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("rate").getOrCreate()
rate = spark.readStream.format("rate").option("rowsPerSecond", 100).load()
even = rate.where(F.col("value") % 2 == 0).withColumn("loaded_at", F.current_timestamp())
even.writeStream.format("console").queryName("even").start()
buckets = rate.withColumn("bucket", F.col("value") % 10).groupBy("bucket").count()
buckets.writeStream.outputMode("update").format("console").queryName("buckets").start().awaitTermination(60)
