import configparser
import os
from pyspark.sql import SparkSession

parser = configparser.ConfigParser()
parser.read(os.path.join(os.path.dirname(os.path.abspath(__file__)), "settings", "job.ini"))
spark = SparkSession.builder.getOrCreate()
alarms = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", parser["kafka"]["brokers"])
    .option("subscribe", parser.get("kafka", "topic")).load().selectExpr("CAST(value AS STRING) AS alarm"))
alarms.writeStream.format("json").option("checkpointLocation", "/cp").start(parser.get("sink", "path"))
