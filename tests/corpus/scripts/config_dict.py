import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json, lit

CONFIG = {
    "bootstrap": os.environ["KAFKA_BOOTSTRAP"],
    "env": os.getenv("DEPLOY_ENV", "dev"),
    "topics": {
        "orders": "id STRING, total BIGINT",
        "refunds": "id STRING, order_id STRING, total BIGINT",
    },
}

spark = SparkSession.builder.appName(f"ingest-{CONFIG['env']}").getOrCreate()

for topic, ddl in CONFIG["topics"].items():
    (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", CONFIG["bootstrap"])
        .option("subscribe", topic)
        .option("kafka.sasl.jaas.config", os.environ.get("JAAS"))
        .load()
        .select(from_json(col("value").cast("string"), ddl).alias("v"))
        .select("v.*", lit(topic).alias("topic"))
        .writeStream.format("delta")
        .queryName(f"{topic}_bronze")
        .option("checkpointLocation", f"/chk/{CONFIG['env']}/{topic}")
        .start(f"/lake/{CONFIG['env']}/{topic}")
    )
spark.streams.awaitAnyTermination()
