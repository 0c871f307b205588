from pyspark.sql import SparkSession
from pyspark.sql.functions import expr

spark = SparkSession.builder.appName("ad attribution").getOrCreate()

impressions = (
    spark.readStream.schema("adId BIGINT, impressionTime TIMESTAMP, campaign STRING").parquet("/lake/impressions")
)
clicks = spark.readStream.schema("clickAdId BIGINT, clickTime TIMESTAMP").parquet("/lake/clicks")

joined = impressions.withWatermark("impressionTime", "2 hours").join(
    clicks.withWatermark("clickTime", "3 hours"),
    expr("""
        clickAdId = adId AND
        clickTime >= impressionTime AND
        clickTime <= impressionTime + interval 1 hour
    """),
)
joined.writeStream.format("parquet").option("path", "/lake/attributed").option("checkpointLocation", "/chk/a").start().awaitTermination()
