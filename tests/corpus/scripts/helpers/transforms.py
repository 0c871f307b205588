from pyspark.sql import functions as F


def with_day(df):
    return df.withColumn("day", F.to_date("at"))


def only_valid(df):
    return df.filter(F.col("valid"))
