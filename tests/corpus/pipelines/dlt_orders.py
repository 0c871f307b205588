import dlt
from pyspark.sql.functions import col, expr, sum as sum_


@dlt.table(comment="orders as they land")
def orders_raw():
    return (spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
            .schema("id STRING, customer STRING, cents BIGINT, at TIMESTAMP").load("/landing/orders"))


@dlt.table(table_properties={"quality": "silver"})
@dlt.expect("known customer", "customer IS NOT NULL")
@dlt.expect_or_drop("positive", "cents > 0")
def orders_clean():
    return dlt.read_stream("orders_raw").select("id", "customer", "cents", expr("date(at) AS day"))


@dlt.table
@dlt.expect_all_or_fail({"has day": "day IS NOT NULL"})
def revenue():
    return dlt.read("orders_clean").groupBy("customer", "day").agg(sum_(col("cents")).alias("cents"))
