# average temperature by device; the schema is inferred from a sample that is read first
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.types import *

spark = (SparkSession
    .builder
    .master("local[*]")
    .appName("sensors")
    .getOrCreate())

schema = StructType().add("device", StringType()).add("temperature", DoubleType()).add("ts", TimestampType())

readings = spark.readStream.format("csv").schema(schema).option("header", True).load("/data/sensors/")
avg = readings.groupBy(F.col("device")).agg(F.avg("temperature").alias("avg_temp"), F.max("ts").alias("last_seen"))
avg.writeStream.format("memory").queryName("averages").outputMode("complete").start()
spark.sql("select * from averages").show()
