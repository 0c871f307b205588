"""Orders without a payment within an hour: a left outer join of two streams."""
from pyspark.sql import SparkSession
import pyspark.sql.functions as F

spark = SparkSession.builder.getOrCreate()
orders = spark.readStream.schema("order_id STRING, ordered_at TIMESTAMP").json("in/orders")
payments = spark.readStream.schema("pid STRING, order_ref STRING, paid_at TIMESTAMP").json("in/payments")

o = orders.withWatermark("ordered_at", "10 minutes").alias("o")
p = payments.withWatermark("paid_at", "10 minutes").alias("p")

unpaid = (
    o.join(
        p,
        (F.col("o.order_id") == F.col("p.order_ref"))
        & (F.col("p.paid_at").between(F.col("o.ordered_at"), F.col("o.ordered_at") + F.expr("INTERVAL 1 HOUR"))),
        "leftOuter",
    )
    .where(F.col("p.pid").isNull())
    .select("o.order_id", "o.ordered_at")
)
unpaid.writeStream.queryName("unpaid").outputMode("append").format("json").start("out/unpaid", checkpointLocation="chk/unpaid").awaitTermination()
