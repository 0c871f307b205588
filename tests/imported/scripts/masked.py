"""Addresses are masked by a function in Python, and written as Parquet."""

import hashlib
import os

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, lower, udf, when
from pyspark.sql.types import StringType

SALT = "pepper"
OUT = os.environ.get("OUT", "lake")


def salted(text):
    return SALT + text


@udf(returnType=StringType())
def pseudonym(email):
    return None if email is None else hashlib.sha256(salted(email).encode()).hexdigest()[:12]


def main():
    spark = SparkSession.builder.appName("masked").getOrCreate()
    users = spark.readStream.schema("email STRING, country STRING, years INT").json("data/users")
    masked = users.select(
        pseudonym(lower("email")).alias("id"),
        when(col("years") < 18, "minor").otherwise("adult").alias("age"),
        "country",
    ).where("country <> 'XX'")
    (
        masked.writeStream.format("parquet")
        .option("checkpointLocation", f"{OUT}/_checkpoint")
        .trigger(availableNow=True)
        .start(f"{OUT}/masked")
        .awaitTermination()
    )


if __name__ == "__main__":
    main()
