from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
TARGETS = [("orders", "order_id"), ("items", "item_id")]

def upsert(table, key):
    def into(micro_batch, batch_id):
        micro_batch.createOrReplaceTempView(f"updates_{table}")
        micro_batch.sparkSession.sql(f"""
            MERGE INTO silver.{table} t
            USING (SELECT * FROM (SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY ts DESC) AS n FROM updates_{table}) WHERE n = 1) s
            ON t.{key} = s.{key}
            WHEN MATCHED AND s.ts > t.ts THEN UPDATE SET *
            WHEN NOT MATCHED THEN INSERT *""")
    return into

streams = []
for table, key in TARGETS:
    streams.append(spark.readStream.option("readChangeFeed", "true").option("startingVersion", 0).table(f"bronze.{table}")
        .writeStream.foreachBatch(upsert(table, key)).option("checkpointLocation", f"/cp/{table}").trigger(availableNow=True).start())
[s.awaitTermination() for s in streams]
