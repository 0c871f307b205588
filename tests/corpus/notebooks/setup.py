# Databricks notebook source
spark.conf.set("spark.sql.shuffle.partitions", "auto")

# COMMAND ----------

def checkpoint(name):
    return f"/mnt/chk/{name}"
