from delta.tables import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql.window import Window
import pyspark.sql.functions as F

spark = (SparkSession.builder
    .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
    .getOrCreate())


def upsert(micro_batch, batch_id):
    w = Window.partitionBy("customer_id").orderBy(F.col("updated_at").desc())
    latest = micro_batch.withColumn("rn", F.row_number().over(w)).where("rn = 1").drop("rn")
    target = DeltaTable.forPath(spark, "/lake/customers")
    (target.alias("t")
        .merge(latest.alias("s"), "t.customer_id = s.customer_id")
        .whenMatchedUpdateAll(condition="s.updated_at > t.updated_at")
        .whenNotMatchedInsertAll()
        .execute())


changes = (spark.readStream.format("delta").option("readChangeFeed", "true").table("bronze.customers"))
changes.writeStream.foreachBatch(upsert).outputMode("update").option("checkpointLocation", "/chk/c").start().awaitTermination()
