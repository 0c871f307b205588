from pyspark.sql import SparkSession
from pyspark.sql.functions import col, count

spark = SparkSession.builder.getOrCreate()
logins = spark.readStream.schema("ip STRING, ok BOOLEAN").json("/in/logins")
suspects = logins.where(~col("ok")).groupBy("ip").agg(count("*").alias("n")).where(col("n") >= 100).select("ip")
suspects.writeStream.outputMode("update").queryName("suspects").format("console").start().awaitTermination()
