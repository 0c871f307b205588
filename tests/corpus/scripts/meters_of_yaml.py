from pathlib import Path
import yaml
from pyspark.sql import SparkSession, functions as F

HERE = Path(__file__).parent
conf = yaml.safe_load((HERE / "settings" / "pipeline.yaml").read_text())
spark = SparkSession.builder.getOrCreate()
src = conf["source"]
meters = spark.readStream.format(src["format"]).schema(src["schema"]).load(src["path"])
peaks = (meters.withWatermark("at", conf["watermark"]).groupBy(F.window("at", "1 hour"), "meter").agg(F.max("wh").alias("peak")))
for sink, frame in zip(conf["sinks"], (meters, peaks)):
    frame.writeStream.format("parquet").option("checkpointLocation", sink["path"] + "/_cp").queryName(sink["name"]).start(sink["path"])
