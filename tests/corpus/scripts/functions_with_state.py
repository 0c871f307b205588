"""Functions for each record that are more than that: chance, a memory, the batch, a service."""

import uuid
from typing import Iterator

import pandas as pd
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.functions import pandas_udf

spark = SparkSession.builder.appName("functions").getOrCreate()
orders = spark.readStream.schema("id STRING, price DOUBLE").json("/in/orders")
seen = {}
_model = None


def model():
    global _model
    if _model is None:
        _model = {"factor": 1.2}
    return _model


@F.udf("string")
def receipt(order):
    return f"{order}-{uuid.uuid4()}"


@F.udf("int")
def times_seen(order):
    seen[order] = seen.get(order, 0) + 1
    return seen[order]


@F.udf("double")
def scored(price):
    return price * model()["factor"]


@pandas_udf("double")
def centred(price: pd.Series) -> pd.Series:
    return price - price.mean()


@pandas_udf("double")
def doubled(prices: Iterator[pd.Series]) -> Iterator[pd.Series]:
    for price in prices:
        yield price * 2


for name, column in {
    "receipts": receipt("id"),
    "counted": times_seen("id"),
    "scores": scored("price"),
    "centres": centred("price"),
    "doubles": doubled("price"),
}.items():
    orders.withColumn("more", column).writeStream.queryName(name).format("console").start()
spark.streams.awaitAnyTermination()
