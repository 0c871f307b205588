# Databricks notebook source
from delta.tables import DeltaTable

dbutils.widgets.text("table", "gold.accounts", "target")
target_name = dbutils.widgets.get("table")

# COMMAND ----------

def merge(batch, _):
    if not spark.catalog.tableExists(target_name):
        batch.write.saveAsTable(target_name)
        return
    (DeltaTable.forName(spark, target_name).alias("t")
     .merge(batch.alias("s"), "s.account = t.account")
     .whenMatchedUpdateAll()
     .whenNotMatchedInsertAll()
     .execute())

# COMMAND ----------

(spark.readStream.format("delta").table("silver.accounts")
 .writeStream.foreachBatch(merge).trigger(once=True).option("checkpointLocation", "/mnt/chk/gold").start())
