from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
df = spark.read.parquet("/lake/a")
df.groupBy("k").count().write.mode("overwrite").parquet("/lake/b")
