"""The queries of spark-pipeline.yml as functions, written by `blazes import`.

Each takes the streams that its component reads, and returns what the component puts out.
"""

from pyspark.sql import DataFrame, functions as F


def phone_calls(call_center_calls: DataFrame) -> DataFrame:
    """transformations/reports.sql:30."""
    spark = call_center_calls.sparkSession
    return spark.sql("SELECT * FROM {calls} AS calls", calls=call_center_calls)


def orders(phone_calls: DataFrame, web_orders: DataFrame, store_orders: DataFrame) -> DataFrame:
    """transformations/orders.py:13."""
    spark = phone_calls.sparkSession
    flow_1 = spark.sql("""
SELECT order_id, customer_id, day, ts, cents, 'phone' AS channel
FROM {phone_calls} AS phone_calls
WHERE order_id IS NOT NULL
""", phone_calls=phone_calls)
    flow_2 = web_orders
    flow_3 = store_orders.withColumn("channel", F.expr("'store'"))
    return flow_1.unionByName(flow_2).unionByName(flow_3)


def distinct_orders(orders: DataFrame) -> DataFrame:
    """transformations/orders.py:29."""
    return orders.dropDuplicates()


def refunds(refunds_source: DataFrame) -> DataFrame:
    """transformations/orders.py:35."""
    return refunds_source


def refunded_orders(distinct_orders: DataFrame, refunds: DataFrame) -> DataFrame:
    """transformations/orders.py:41."""
    refunds_2 = refunds.select("order_id", "reason")
    return (
        distinct_orders
        .join(refunds_2, ["order_id"], "inner")
        .select("order_id", "customer_id", "cents", "reason")
    )


def first_orders(orders: DataFrame) -> DataFrame:
    """transformations/orders.py:49."""
    return orders.dropDuplicates(["customer_id"])


def kept_orders(distinct_orders: DataFrame, refunds: DataFrame) -> DataFrame:
    """transformations/orders.py:55."""
    return (
        distinct_orders
        .join(refunds, ["order_id"], "anti")
    )


def customer_changes(customer_changes_source: DataFrame) -> DataFrame:
    """transformations/orders.py:62."""
    return customer_changes_source


def alerts(refunds: DataFrame) -> DataFrame:
    """transformations/orders.py:76."""
    return (
        refunds
        .where("cents > 100000")
        .selectExpr("CAST(order_id AS string) AS key", "reason AS value")
    )
