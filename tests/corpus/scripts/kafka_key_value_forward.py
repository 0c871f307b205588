from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

df = (spark.readStream.format("kafka")
      .option("kafka.bootstrap.servers", "broker-1:9092,broker-2:9092")
      .option("subscribe", "orders.raw")
      .option("failOnDataLoss", "false")
      .load())

# keep key and value as text, drop tombstones, forward
(df.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)")
   .where("value IS NOT NULL")
   .writeStream
   .format("kafka")
   .option("kafka.bootstrap.servers", "broker-1:9092,broker-2:9092")
   .option("topic", "orders.clean")
   .option("checkpointLocation", "/chk/orders.clean")
   .queryName("forward_orders")
   .start())

spark.streams.awaitAnyTermination()
