from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
raw = spark.readStream.format("kafka").option("kafka.bootstrap.servers", "k").option("subscribePattern", "iot-.*").load()
parsed = raw.select(F.col("topic"), F.col("value").cast("string").alias("text"), F.from_json(F.col("value").cast("string"), "id STRING, t DOUBLE, _corrupt_record STRING", {"mode": "PERMISSIVE"}).alias("j"))

def split(batch, batch_id):
    batch.persist()
    good = batch.where("j._corrupt_record IS NULL").select("topic", "j.id", "j.t")
    bad = batch.where("j._corrupt_record IS NOT NULL").select("topic", "text", F.current_timestamp().alias("seen"))
    good.write.format("delta").mode("append").option("txnVersion", batch_id).option("txnAppId", "iot").saveAsTable("silver.iot")
    bad.write.format("delta").mode("append").saveAsTable("silver.iot_rejects")
    batch.unpersist()

parsed.writeStream.foreachBatch(split).option("checkpointLocation", "/cp/iot").start().awaitTermination()
