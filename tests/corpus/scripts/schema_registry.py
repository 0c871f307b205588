from confluent_kafka.schema_registry import SchemaRegistryClient
from pyspark.sql import SparkSession, functions as F
from pyspark.sql.avro.functions import from_avro

spark = SparkSession.builder.getOrCreate()
registry = SchemaRegistryClient({"url": "http://registry:8081"})
schema = registry.get_latest_version("orders-value").schema.schema_str
orders = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", "k:9092").option("subscribe", "orders").load()
    .withColumn("body", F.expr("substring(value, 6, length(value) - 5)"))
    .select(from_avro("body", schema, {"mode": "PERMISSIVE"}).alias("o"), "partition", "offset").select("o.*"))
orders.writeStream.format("delta").option("checkpointLocation", "/cp").option("mergeSchema", "true").toTable("bronze.orders")
