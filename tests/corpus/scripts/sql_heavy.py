from pyspark.sql import SparkSession

spark = SparkSession.builder.enableHiveSupport().getOrCreate()
spark.conf.set("spark.sql.shuffle.partitions", 16)

spark.readStream.schema("account STRING, `amount in cents` BIGINT, kind STRING, at TIMESTAMP").json(
    "/in/bookings"
).createOrReplaceTempView("bookings")

spark.sql("""
    CREATE OR REPLACE TEMPORARY VIEW debits AS
    SELECT account, `amount in cents` AS cents FROM bookings WHERE kind = 'debit'
""")
balance = spark.sql("""
    WITH signed AS (
        SELECT account, CASE WHEN kind = 'debit' THEN -`amount in cents` ELSE `amount in cents` END AS cents
        FROM bookings
    )
    SELECT account, SUM(cents) AS balance FROM signed GROUP BY account
""")
balance.writeStream.outputMode("update").format("console").queryName("balance").start()
spark.table("debits").writeStream.format("console").queryName("debits_out").start()
spark.streams.awaitAnyTermination()
