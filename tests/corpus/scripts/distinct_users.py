from pyspark.sql import SparkSession
from pyspark.sql.functions import approx_count_distinct, col

spark = SparkSession.builder.getOrCreate()
clicks = spark.readStream.schema("user STRING, page STRING, ts TIMESTAMP").json("/in/clicks")
clicks.createOrReplaceTempView("clicks")

pairs = spark.sql("SELECT DISTINCT user, page FROM clicks")
pairs.writeStream.queryName("pairs").format("memory").outputMode("update").start()

uniques = clicks.groupBy(col("page")).agg(approx_count_distinct("user").alias("uniques"))
uniques.writeStream.queryName("uniques").format("memory").outputMode("complete").start().awaitTermination()
