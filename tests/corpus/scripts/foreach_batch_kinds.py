from pyspark.sql import SparkSession
import pyspark.sql.functions as F

spark = SparkSession.builder.appName("one function each").getOrCreate()


def numbered(df, batch_id):
    df.withColumn("batch", F.lit(batch_id)).write.mode("append").parquet("/lake/numbered")


def by_folder(df, batch_id):
    df.write.mode("append").parquet(f"/lake/by_folder/{batch_id}/rows")


def newest(df, batch_id):
    df.where("level > 3").write.mode("overwrite").parquet("/lake/newest")


def replaced(df, batch_id):
    df.createOrReplaceTempView("updates")
    df.sparkSession.sql("INSERT OVERWRITE TABLE gold.replaced SELECT device, level FROM updates")


def guarded(df, batch_id):
    if df.isEmpty():
        return
    print(f"batch {batch_id}: {df.count()} rows")
    if batch_id % 100 == 0:
        spark.sql("OPTIMIZE gold.guarded")
    df.where("level > 3").write.mode("append").format("delta").saveAsTable("gold.guarded")


def large_only(df, batch_id):
    if df.count() > 1000:
        df.write.mode("append").parquet("/lake/large_only")


def heartbeat(df, batch_id):
    if df.isEmpty():
        df.write.mode("append").parquet("/lake/heartbeat")
    df.write.mode("append").json("/lake/heartbeats")


def enriched(df, batch_id):
    devices = spark.read.schema("device STRING, site STRING").parquet("/ref/devices")
    df.join(devices, "device").write.mode("append").parquet("/lake/enriched")


def earliest(df, batch_id):
    df.write.mode("ignore").parquet("/lake/earliest")


sites = spark.read.schema("device STRING, site STRING").parquet("/ref/sites")


def located(df, batch_id):
    df.join(sites, "device").write.mode("append").parquet("/lake/located")


alerts = spark.readStream.schema("device STRING, level INT").json("/in/alerts")
for function in (numbered, by_folder, newest, replaced, guarded, large_only, heartbeat, enriched, located, earliest):
    alerts.writeStream.foreachBatch(function).option("checkpointLocation", f"/chk/{function.__name__}").start()
spark.streams.awaitAnyTermination()
