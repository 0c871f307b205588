from pyspark.sql import SparkSession
from pyspark.sql.functions import broadcast

spark = SparkSession.builder.getOrCreate()
countries = spark.read.option("header", "true").schema("code STRING, name STRING").csv("/ref/countries.csv")
visits = spark.readStream.schema("user STRING, code STRING").json("/in/visits")
named = visits.join(broadcast(countries), on="code", how="left")
named.writeStream.format("parquet").option("checkpointLocation", "/chk/v").start("/lake/visits").awaitTermination()
