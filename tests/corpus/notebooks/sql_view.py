# Databricks notebook source
spark.readStream.schema("city STRING, fare BIGINT, at TIMESTAMP").json("/mnt/rides").createOrReplaceTempView("rides")

# COMMAND ----------

# MAGIC %sql
# MAGIC CREATE OR REPLACE TEMP VIEW long_rides AS
# MAGIC SELECT city, fare FROM rides WHERE fare > 1000

# COMMAND ----------

(spark.table("long_rides").groupBy("city").count()
 .writeStream.outputMode("complete").option("checkpointLocation", "/mnt/chk/lr").toTable("long_rides_by_city"))

# COMMAND ----------

# MAGIC %scala
# MAGIC println("not Python")
