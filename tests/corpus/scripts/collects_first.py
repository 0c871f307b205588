"""The list of topics is the result of a query: only data says which."""
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
audit = spark.readStream.schema("who STRING, what STRING").json("/in/audit")
audit.writeStream.queryName("audit").format("console").start()
topics = [row.name for row in spark.read.table("conf.topics").collect()]
for topic in topics:
    spark.readStream.format("kafka").option("subscribe", topic).load().writeStream.format("console").start()
