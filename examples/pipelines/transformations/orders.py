"""Orders from two channels, their refunds, and the customers' changing addresses."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark: SparkSession

ORDER = "order_id BIGINT, customer_id BIGINT, day DATE, ts TIMESTAMP, cents BIGINT, channel STRING"
REFUND = "order_id BIGINT, ts TIMESTAMP, cents BIGINT, reason STRING"
CHANGE = "customer_id BIGINT, version BIGINT, city STRING, deleted BOOLEAN"

dp.create_streaming_table("orders", comment="Orders of both channels, once each")


@dp.append_flow(target="orders")
def web_orders() -> DataFrame:
    """Orders from the web, as they were put in."""
    return spark.readStream.format("json").schema(ORDER).load("data/web_orders")


@dp.append_flow(target="orders")
def store_orders() -> DataFrame:
    """Orders from stores, which do not say their channel."""
    stores = spark.readStream.format("json").schema(ORDER).load("data/store_orders")
    return stores.withColumn("channel", F.lit("store"))


@dp.table(comment="One row for each order, however often a channel sends it")
def distinct_orders() -> DataFrame:
    """The same order comes again when a channel retries."""
    return spark.readStream.table("orders").dropDuplicates()


@dp.table
def refunds() -> DataFrame:
    """Refunds, as the payment provider reports them."""
    return spark.readStream.format("json").schema(REFUND).load("data/refunds")


@dp.table
def refunded_orders() -> DataFrame:
    """Orders with their refunds."""
    orders = spark.readStream.table("distinct_orders")
    refunded = spark.readStream.table("refunds").select("order_id", "reason")
    return orders.join(refunded, "order_id").select("order_id", "customer_id", "cents", "reason")


@dp.table
def first_orders() -> DataFrame:
    """Each customer's first order."""
    return spark.readStream.table("orders").dropDuplicates(["customer_id"])


@dp.materialized_view
def kept_orders() -> DataFrame:
    """Orders without a refund."""
    orders, refunded = spark.read.table("distinct_orders"), spark.read.table("refunds")
    return orders.join(refunded, "order_id", "left_anti")


@dp.temporary_view
def customer_changes() -> DataFrame:
    """What the customers' database says that has changed."""
    return spark.readStream.format("json").schema(CHANGE).load("data/customer_changes")


dp.create_streaming_table("customers")
dp.create_auto_cdc_flow(
    target="customers",
    source="customer_changes",
    keys=["customer_id"],
    sequence_by="version",
)

dp.create_sink("alerts", format="kafka", options={"topic": "alerts"})


@dp.append_flow(target="alerts")
def large_refunds() -> DataFrame:
    """Refunds that somebody should look at."""
    large = spark.readStream.table("refunds").where("cents > 100000")
    key = F.col("order_id").cast("string").alias("key")
    return large.select(key, F.col("reason").alias("value"))


# Spark puts its session into each of these files.
# ruff: noqa: F821, N812
