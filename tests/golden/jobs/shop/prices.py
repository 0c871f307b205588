"""What a price can be."""

from pyspark.sql import DataFrame


def repaired(orders: DataFrame) -> DataFrame:
    """Orders without negative prices."""
    return orders.where("cents >= 0")
