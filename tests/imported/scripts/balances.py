"""Views and common table expressions in SQL."""

from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()

spark.readStream.schema("account STRING, cents BIGINT, kind STRING").option(
    "maxFilesPerTrigger", "1"
).json("data/bookings").createOrReplaceTempView("bookings")
spark.read.schema("account STRING, owner STRING").option("header", True).csv(
    "data/owners"
).createOrReplaceTempView("owners")

spark.sql("""
    CREATE OR REPLACE TEMPORARY VIEW signed AS
    SELECT account,
           CASE WHEN kind = 'debit' THEN -cents ELSE cents END AS cents
    FROM bookings
""")
balances = spark.sql("""
    WITH owned AS (
        SELECT o.owner, s.cents FROM signed s JOIN owners o ON s.account = o.account
    )
    SELECT owner, SUM(cents) AS balance, COUNT(*) AS bookings FROM owned GROUP BY owner
""")
balances.writeStream.outputMode("complete").format("memory").queryName("balances").trigger(
    availableNow=True
).start().awaitTermination()
