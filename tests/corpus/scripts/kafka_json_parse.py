import argparse
import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, from_json
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType, TimestampType


def parse_args():
    parser = argparse.ArgumentParser(description="Parse payments into the lake")
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--topic", default="payments")
    parser.add_argument("--output", required=True, help="s3 prefix")
    parser.add_argument("--trigger-seconds", type=int, default=30)
    return parser.parse_args()


payment_schema = StructType(
    [
        StructField("payment_id", StringType(), False),
        StructField("account", LongType()),
        StructField("amount", DoubleType()),
        StructField("paid_at", TimestampType()),
    ]
)


def main():
    args = parse_args()
    spark = SparkSession.builder.appName("payments-ingest").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    raw = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", args.bootstrap_servers)
        .option("subscribe", args.topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    payments = (
        raw.selectExpr("CAST(value AS STRING)")
        .select(from_json(col("value"), payment_schema).alias("data"))
        .select("data.*")
        .filter(col("amount") > 0)
    )
    query = (
        payments.writeStream.format("parquet")
        .option("path", os.path.join(args.output, "payments"))
        .option("checkpointLocation", os.path.join(args.output, "_checkpoints"))
        .trigger(processingTime=f"{args.trigger_seconds} seconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main()
