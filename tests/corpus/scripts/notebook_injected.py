# nothing is imported: the platform puts `spark` and `dbutils` in place
dbutils.widgets.text("catalog", "dev")
dbutils.widgets.dropdown("mode", "append", ["append", "complete"])
catalog = dbutils.widgets.get("catalog")
password = dbutils.secrets.get(scope="kafka", key="password")

from pyspark.sql import functions as F

orders = (spark.readStream.format("kafka")
          .option("kafka.bootstrap.servers", "k:9092")
          .option("subscribe", "orders")
          .option("kafka.ssl.keystore.password", password)
          .load()
          .withColumn("order", F.from_json(F.col("value").cast("string"), "id STRING, cents BIGINT, country STRING"))
          .select("order.*"))
display(orders)
by_country = orders.groupBy("country").agg(F.sum("cents").alias("cents"))
(by_country.writeStream.outputMode(dbutils.widgets.get("mode") if False else "complete")
    .option("checkpointLocation", f"/chk/{catalog}/by_country")
    .toTable(f"{catalog}.gold.by_country"))
