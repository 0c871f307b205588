# Databricks notebook source
# MAGIC %run ./setup

# COMMAND ----------

dbutils.widgets.text("catalog", "dev")
dbutils.widgets.dropdown("mode", "append", ["append", "complete"])
catalog = dbutils.widgets.get("catalog")

# COMMAND ----------

stream = read_bronze("visits")
stream.createOrReplaceTempView("visits")

# COMMAND ----------

# MAGIC %sql
# MAGIC CREATE OR REPLACE TEMP VIEW per_page AS
# MAGIC SELECT page, count(DISTINCT visitor) AS visitors FROM visits GROUP BY page

# COMMAND ----------

(spark.table("per_page").writeStream.outputMode(dbutils.widgets.get("mode")).option("checkpointLocation", f"/cp/{catalog}/per_page")
  .trigger(availableNow=True).toTable(f"{catalog}.gold.per_page"))
