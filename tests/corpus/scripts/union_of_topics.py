from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, get_json_object

spark = SparkSession.builder.getOrCreate()


def read(topic):
    return (spark.readStream.format("kafka").option("kafka.bootstrap.servers", "b:9092")
            .option("subscribe", topic).load()
            .select(col("topic"), col("value").cast("string").alias("body"))
            .select("topic", get_json_object("body", "$.id").alias("id")))


streams = [read(t) for t in ("eu", "us", "asia")]
everything = reduce(DataFrame.unionByName, streams)
(everything.writeStream.format("kafka").option("kafka.bootstrap.servers", "b:9092").option("topic", "world")
    .option("checkpointLocation", "/chk").queryName("world")).start().awaitTermination()
