from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
products = spark.read.format("delta").load("/lake/products").select("sku", "category")
sales = spark.readStream.schema("sku STRING, cents BIGINT").json("/in/sales")
(sales.join(products, "sku").writeStream.format("delta").option("checkpointLocation", "/chk/s")
    .outputMode("append").start("/lake/sales").awaitTermination())
