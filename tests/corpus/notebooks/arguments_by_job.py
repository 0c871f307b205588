# Databricks notebook source
import json
env = dbutils.widgets.get("env")
tables = json.loads(dbutils.widgets.get("tables")) if env == "prod" else ["a", "b"]

# COMMAND ----------

for name in tables:
    (spark.readStream.table(f"raw.{name}").writeStream
     .option("checkpointLocation", f"/mnt/{env}/chk/{name}").queryName(name).toTable(f"{env}.{name}"))
