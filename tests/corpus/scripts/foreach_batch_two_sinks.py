from pyspark.sql import SparkSession
from pyspark.sql.functions import col

spark = SparkSession.builder.getOrCreate()


def fan_out(batch, batch_id):
    batch.persist()
    batch.filter(col("level") == "ERROR").write.mode("append").parquet("/lake/errors")
    batch.filter(col("level") != "ERROR").write.mode("append").format("delta").save("/lake/rest")
    batch.unpersist()


logs = spark.readStream.format("text").load("/logs").selectExpr(
    "split(value, ' ')[0] AS level", "substring(value, 10) AS message")
logs.writeStream.foreachBatch(fan_out).start().awaitTermination()
