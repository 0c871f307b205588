# Databricks notebook source
# MAGIC %md
# MAGIC Scores by pandas; a function of `foreachBatch` writes what is high.

# COMMAND ----------

import pandas as pd
from pyspark.sql import functions as F

FACTOR = 3

# COMMAND ----------

spark.readStream.schema("id BIGINT, tags ARRAY<STRING>, amount BIGINT").json(
    "data/events"
).createOrReplaceTempView("raw")

# COMMAND ----------

# MAGIC %sql
# MAGIC CREATE OR REPLACE TEMPORARY VIEW tagged AS
# MAGIC SELECT id, explode(tags) AS tag, amount FROM raw WHERE amount > 0

# COMMAND ----------


def scores(frames):
    for frame in frames:
        yield pd.DataFrame(
            {"id": frame["id"], "tag": frame["tag"], "score": frame["amount"] * FACTOR}
        )


scored = spark.table("tagged").mapInPandas(scores, "id BIGINT, tag STRING, score BIGINT")

# COMMAND ----------


def write(batch, number):
    batch.where("score >= 30").withColumn("length", F.length("tag")).write.mode("append").json(
        "lake/scored"
    )


scored.writeStream.foreachBatch(write).trigger(availableNow=True).start().awaitTermination()
