from pyspark.sql import SparkSession
from pyspark.sql.functions import col, explode_outer, from_json, schema_of_json, to_timestamp
from pyspark.sql.types import ArrayType, IntegerType, MapType, StringType, StructField, StructType

item = StructType([StructField("sku", StringType()), StructField("qty", IntegerType())])
cart = StructType([
    StructField("cart_id", StringType()),
    StructField("items", ArrayType(item)),
    StructField("attributes", MapType(StringType(), StringType())),
    StructField("ts", StringType()),
])
spark = SparkSession.builder.getOrCreate()
carts = spark.readStream.text("/in/carts").select(from_json(col("value"), cart).alias("c"))
lines = (carts.select("c.cart_id", to_timestamp("c.ts").alias("ts"), explode_outer("c.items").alias("item"),
                      col("c.attributes")["channel"].alias("channel"))
         .select("cart_id", "ts", "item.sku", col("item.qty").alias("qty"), "channel"))
lines.groupBy("sku").agg({"qty": "sum"}).writeStream.outputMode("complete").queryName("demand").format("console").start().awaitTermination()
