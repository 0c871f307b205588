import argparse
from pyspark.sql import SparkSession
def build():
    p = argparse.ArgumentParser()
    sub = p.add_subparsers(dest="command", required=True)
    a = sub.add_parser("ingest"); a.add_argument("--input", required=True)
    b = sub.add_parser("aggregate"); b.add_argument("--input", required=True)
    return p
def ingest(spark, args):
    spark.readStream.schema("k STRING, v INT").json(args.input).writeStream.format("parquet").option("checkpointLocation", "/c1").queryName("ingest").start("/bronze")
def aggregate(spark, args):
    spark.readStream.schema("k STRING, v INT").json(args.input).groupBy("k").count().writeStream.outputMode("update").format("console").queryName("aggregate").start()
def main():
    args = build().parse_args()
    spark = SparkSession.builder.getOrCreate()
    {"ingest": ingest, "aggregate": aggregate}[args.command](spark, args)
    spark.streams.awaitAnyTermination()
if __name__ == "__main__":
    main()
