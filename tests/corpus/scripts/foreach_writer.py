import json

import redis
from pyspark.sql import SparkSession


class RedisWriter:
    def open(self, partition_id, epoch_id):
        self.client = redis.Redis(host="cache", port=6379)
        return True

    def process(self, row):
        self.client.set(row.key, json.dumps(row.asDict()))

    def close(self, error):
        self.client.close()


spark = SparkSession.builder.getOrCreate()
prices = spark.readStream.schema("key STRING, price DOUBLE").json("/in/prices")
prices.writeStream.foreach(RedisWriter()).start().awaitTermination()
