"""Operators of the settlement dataflow that are easier to say in Python than in SQL."""

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

LIMIT_CENTS = 100_000
"""What a card may spend on a day."""


def score(charges: DataFrame) -> DataFrame:
    """Each charge with `risk`: points for what stolen cards have in common, at most 100."""
    hour = F.substring("at", 12, 2).cast("int")
    signs = [
        (F.col("amount_cents") >= 40_000, 35),
        (F.col("card_country") != F.col("ip_country"), 30),
        (hour < 5, 20),
        (F.col("amount_cents") % 10_000 == 0, 15),
    ]
    return charges.withColumn("risk", sum((points(*sign) for sign in signs), F.lit(0)))


def points(sign: Column, worth: int) -> Column:
    """What a sign is worth where it is seen; 0 where it is not, or not known."""
    return F.when(sign, F.lit(worth)).otherwise(F.lit(0))


def hold(scored: DataFrame) -> DataFrame:
    """The payments that do not fit under their card's limit, with what it had spent before."""
    captures = scored.where("kind = 'capture'")
    columns = "payment string, card string, day date, amount_cents bigint, spent_cents bigint"
    return captures.groupBy("card", "day").applyInPandas(first_come_first_served, columns)


def first_come_first_served(payments: pd.DataFrame) -> pd.DataFrame:
    """The held ones of a card's payments of a day, which come in their recorded order."""
    spent, held = 0, []
    for payment in payments.itertuples():
        fits = spent + payment.amount_cents <= LIMIT_CENTS
        held.append(None if fits else spent)
        spent += payment.amount_cents if fits else 0
    payments = payments.assign(spent_cents=held)[
        ["payment", "card", "day", "amount_cents", "spent_cents"]
    ]
    return payments[payments["spent_cents"].notna()]
