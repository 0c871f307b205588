from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()


def upsert_counts(df, epoch_id):
    df.createOrReplaceTempView("updates")
    df.sparkSession.sql("""
        MERGE INTO gold.page_counts t
        USING updates s ON s.page = t.page
        WHEN MATCHED THEN UPDATE SET t.n = s.n
        WHEN NOT MATCHED THEN INSERT (page, n) VALUES (s.page, s.n)
    """)


views = spark.readStream.schema("page STRING, at TIMESTAMP").json("/in/views")
counts = views.groupBy("page").count().withColumnRenamed("count", "n")
counts.writeStream.foreachBatch(upsert_counts).outputMode("update").start().awaitTermination()
