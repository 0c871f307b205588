"""Functions for each record that are more than that: chance, a memory, the batch, a service."""

import os
import uuid
from pathlib import Path
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


class Numbers:
    def __init__(self, first):
        self.next = first

    def __call__(self, order):
        self.next += 1
        return self.next


@F.udf("int")
def rebate(order):
    return int(Path("/etc/rebates").joinpath(order).read_text())


@F.udf("string")
def labels(order):
    return os.environ["REGION"] + "|".join({order, order.upper()})


@pandas_udf("double")
def shares(price: pd.Series) -> pd.Series:
    return price / price.groupby(price.index // 100).transform("sum")


for name, column in {
    "receipts": receipt("id"),
    "counted": times_seen("id"),
    "scores": scored("price"),
    "centres": centred("price"),
    "doubles": doubled("price"),
    "numbers": F.udf(Numbers(0), "int")("id"),
    "rebates": rebate("id"),
    "labels": labels("id"),
    "shares": shares("price"),
}.items():
    orders.withColumn("more", column).writeStream.queryName(name).format("console").start()
spark.streams.awaitAnyTermination()
