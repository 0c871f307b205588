from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.table
def baskets():
    return spark.readStream.schema("basket STRING, sku STRING, qty INT").json(spark.conf.get("shop.source"))
