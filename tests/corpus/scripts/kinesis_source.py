from pyspark.sql import SparkSession
import pyspark.sql.functions as F

spark = SparkSession.builder.getOrCreate()
k = (spark.readStream.format("kinesis").option("streamName", "taxi").option("region", "us-east-1")
     .option("initialPosition", "latest").load())
rides = k.select(F.from_json(F.col("data").cast("string"), "ride STRING, fare BIGINT, zone INT").alias("r")).select("r.*")
rides.groupBy("zone").agg(F.max("fare").alias("highest")).writeStream.outputMode("update").queryName("highest").format("console").start().awaitTermination()
