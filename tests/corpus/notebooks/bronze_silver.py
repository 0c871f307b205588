# Databricks notebook source
# MAGIC %md
# MAGIC # Bronze and silver
# MAGIC Raw telemetry, then one row for each reading.

# COMMAND ----------

# MAGIC %pip install some-internal-package==1.2.3

# COMMAND ----------

# MAGIC %run ./setup

# COMMAND ----------

from pyspark.sql import functions as F

dbutils.widgets.text("landing", "/mnt/landing/telemetry")
landing = dbutils.widgets.get("landing")

bronze = (spark.readStream.format("cloudFiles")
          .option("cloudFiles.format", "json")
          .schema("device STRING, at TIMESTAMP, readings ARRAY<STRUCT<name: STRING, value: BIGINT>>")
          .load(landing))
bronze.writeStream.option("checkpointLocation", "/mnt/chk/bronze").toTable("telemetry_bronze")

# COMMAND ----------

silver = (spark.readStream.table("telemetry_bronze")
          .withColumn("r", F.explode("readings"))
          .select("device", "at", "r.name", "r.value"))
display(silver)
silver.writeStream.option("checkpointLocation", "/mnt/chk/silver").toTable("telemetry_silver")

# COMMAND ----------

# MAGIC %sql
# MAGIC SELECT count(*) FROM telemetry_silver
