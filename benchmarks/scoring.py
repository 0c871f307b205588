"""The Python component of `scores.yaml`."""

from __future__ import annotations

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf


@sf.pandas_udf("bigint")
def risk(ad: pd.Series) -> pd.Series:
    """The risk of each click."""
    return (ad * 7919) % 101


def score(click: DataFrame) -> DataFrame:
    """The risk of each ad in each campaign."""
    scored = click.withColumn("risk", risk("id"))
    return scored.groupBy("campaign", "id").agg(sf.sum("risk").alias("risk"))
