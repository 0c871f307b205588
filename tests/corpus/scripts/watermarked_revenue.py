from pyspark.sql import SparkSession
import pyspark.sql.functions as F

spark = SparkSession.builder.appName("revenue").config("spark.sql.shuffle.partitions", "8").getOrCreate()

orders = (
    spark.readStream.schema("order_id STRING, shop STRING, cents BIGINT, at TIMESTAMP")
    .option("maxFilesPerTrigger", 10)
    .json("/landing/orders")
)
revenue = (
    orders.withWatermark("at", "15 minutes")
    .groupBy(F.window("at", "5 minutes"), "shop")
    .agg(F.sum("cents").alias("cents"), F.count("*").alias("orders"))
    .select("shop", F.col("window.start").alias("start"), F.col("window.end").alias("end"), "cents", "orders")
)
(
    revenue.writeStream.outputMode("append").format("parquet")
    .option("checkpointLocation", "/chk/revenue").option("path", "/lake/revenue").start().awaitTermination()
)
