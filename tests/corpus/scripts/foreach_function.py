import requests
from pyspark.sql import SparkSession


def post(row):
    requests.post("https://hooks.internal/alerts", json={"device": row.device, "level": row.level}, timeout=3)


spark = SparkSession.builder.getOrCreate()
alerts = spark.readStream.schema("device STRING, level INT").json("/in/alerts").where("level > 3")
alerts.writeStream.queryName("alerts").foreach(post).start().awaitTermination()
