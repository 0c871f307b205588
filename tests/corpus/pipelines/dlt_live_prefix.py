# Databricks notebook source
import dlt

# COMMAND ----------

@dlt.create_table(name="events", spark_conf={"pipelines.trigger.interval": "10 seconds"})
def make_events():
    start = spark.conf.get("pipeline.start")
    return (spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", spark.conf.get("pipeline.brokers")).option("subscribe", "events")
            .load().selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS body", "timestamp")
            .where(f"timestamp >= '{start}'"))

# COMMAND ----------

@dlt.table
def counts():
    return spark.sql("SELECT key, count(*) AS n FROM LIVE.events GROUP BY key")
