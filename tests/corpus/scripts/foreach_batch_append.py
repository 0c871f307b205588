from pyspark.sql import SparkSession, DataFrame
import pyspark.sql.functions as F

JDBC_URL = "jdbc:postgresql://db/warehouse"


def write_to_postgres(batch_df: DataFrame, batch_id: int) -> None:
    (
        batch_df.withColumn("amount_eur", F.col("amount") / 100)
        .write.format("jdbc")
        .option("url", JDBC_URL)
        .option("dbtable", "public.payments")
        .mode("append")
        .save()
    )


spark = SparkSession.builder.appName("to postgres").getOrCreate()
payments = spark.readStream.schema("id STRING, amount BIGINT").json("/in/payments")
payments.writeStream.foreachBatch(write_to_postgres).option("checkpointLocation", "/chk/pg").start().awaitTermination()
