from pyspark import pipelines as dp
from pyspark.sql import SparkSession
from pyspark.sql.functions import col

spark = SparkSession.active()


@dp.table
def clicks():
    return spark.readStream.schema("user STRING, page STRING").json("/in/clicks")


@dp.temporary_view
def product_pages():
    return spark.readStream.table("clicks").where(col("page").startswith("/product/"))


@dp.materialized_view(comment="visits of product pages")
def visits():
    return spark.read.table("product_pages").groupBy("page").count()
