import os
from pyspark.sql import SparkSession
ENV = os.environ.get("ENV", "dev")
CONF = {"dev": {"path": "/dev/in", "trigger": {"once": True}}, "prod": {"path": "s3a://prod/in", "trigger": {"processingTime": "1 minute"}}}[ENV]
spark = SparkSession.builder.getOrCreate()
df = spark.readStream.schema("id STRING, n INT").json(CONF["path"])
out = df.groupBy("id").sum("n")
out.writeStream.trigger(**CONF["trigger"]).outputMode("complete").format("memory").queryName("sums").start()
