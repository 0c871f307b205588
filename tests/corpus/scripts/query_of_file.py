import tomllib
from pyspark.sql import SparkSession

with open("settings/pipeline.toml", "rb") as f:
    settings = tomllib.load(f)
spark = SparkSession.builder.getOrCreate()
rides = (spark.readStream.schema(settings["source"]["schema"]).json("/landing/" + settings["source"]["topic"]))
rides.createOrReplaceTempView("rides")
with open("settings/hourly.sql") as q:
    hourly = spark.sql(q.read())
hourly.writeStream.outputMode("complete").format("console").queryName("hourly").start()
rides.where("km > 1").writeStream.format("parquet").option("checkpointLocation", "/c").start(settings["sink"]["path"])
