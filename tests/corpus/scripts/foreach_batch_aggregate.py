from pyspark.sql import SparkSession
from pyspark.sql.functions import sum as sum_

spark = SparkSession.builder.getOrCreate()
sales = spark.readStream.schema("shop STRING, cents BIGINT").json("/in/sales")

# sums of each micro-batch: not sums of anything that the data knows
sales.writeStream.foreachBatch(
    lambda df, n: df.groupBy("shop").agg(sum_("cents").alias("cents")).write.mode("append").parquet("/lake/sums")
).start().awaitTermination()
