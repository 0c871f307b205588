"""Operators of the shop."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from prices import repaired


def clean(orders: DataFrame) -> DataFrame:
    """Orders with a price that can be right, by store."""
    return repaired(orders).withColumnRenamed("shop", "store")


def turnover(sales: DataFrame) -> DataFrame:
    """Turnover by store and article."""
    return sales.groupBy("store", "article").agg(sf.sum("cents").alias("cents"))
