# Databricks notebook source
spark.conf.set("spark.sql.shuffle.partitions", "auto")

# COMMAND ----------

def checkpoint(name):
    return f"/mnt/chk/{name}"
from pyspark.sql import functions as F

def read_bronze(name):
    return (spark.readStream.format("cloudFiles").option("cloudFiles.format", "json")
        .schema("page STRING, visitor STRING, at TIMESTAMP").load(f"/mnt/bronze/{name}"))
