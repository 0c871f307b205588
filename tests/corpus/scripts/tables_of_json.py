import json
from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json

spark = SparkSession.builder.appName("ingest").getOrCreate()
with open("settings/pipeline.json") as handle:
    config = json.load(handle)

def start(table):
    raw = (spark.readStream.format("kafka").option("kafka.bootstrap.servers", config["broker"])
           .option("subscribe", table["topic"]).load())
    rows = raw.select(from_json(col("value").cast("string"), config["schema"]).alias("r")).select("r.*")
    return (rows.writeStream.format("delta").option("checkpointLocation", f"{config['lake']}/_cp/{table['name']}")
            .queryName(table["name"]).start(f"{config['lake']}/{table['name']}"))

queries = [start(t) for t in config["tables"]]
spark.streams.awaitAnyTermination()
