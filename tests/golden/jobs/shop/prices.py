"""What a price can be."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


@sf.udf("boolean")  # a type that is text needs a session when the module is imported
def possible(cents: int) -> bool:
    """Whether a price is one."""
    return cents is None or cents >= 0


def repaired(orders: DataFrame) -> DataFrame:
    """Orders without negative prices."""
    return orders.where(possible("cents"))
